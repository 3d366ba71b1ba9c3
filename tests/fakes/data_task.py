"""A data task that reports what FAKE_TASK says: {"events": [...], "exit_code": n, "stderr": text, "hang": true}."""

import json
import os
import signal
import sys
from pathlib import Path

script = json.loads(os.environ["FAKE_TASK"])
options = json.loads(sys.stdin.read())
Path(os.environ["FAKE_TASK_SEEN"]).write_text(json.dumps({"task": sys.argv[1], "options": options}))
sys.stderr.write(script.get("stderr", ""))
for event in script.get("events", []):
    print(event if isinstance(event, str) else json.dumps(event), flush=True)
if script.get("hang"):
    if script["hang"] == "stubborn":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
    line = os.open(os.environ["LIFELINE"], os.O_WRONLY)
    os.write(line, b"%d\n" % os.getpid())
    while True:
        signal.pause()
sys.exit(script.get("exit_code", 0))
