"""A command of a benchmark: benchmark.py BEHAVIOUR; what hangs holds on to the line LIFELINE, if there is one."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

LONG_S = 900


def hold_on(until: int = -1) -> None:
    if "LIFELINE" in os.environ:
        line = os.open(os.environ["LIFELINE"], os.O_WRONLY)
        os.set_inheritable(line, True)
        os.write(line, b"%d\n" % os.getpid())
    if until >= 0:
        os.close(until)
    time.sleep(LONG_S)


def main(behaviour: str) -> int:
    print("rate: 10 samples/sec\nrate: 30 samples/sec", flush=True)
    print("loss: 0.5", file=sys.stderr, flush=True)
    if behaviour == "hang":
        hold_on()
    elif behaviour == "deaf":  # with a child in a session of its own, both deaf
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        if not os.fork():
            os.setsid()
        hold_on()
    elif behaviour == "leave":  # a child that outlives it
        until, held = os.pipe()
        if not os.fork():
            os.setsid()
            hold_on(held)
        os.close(held)
        os.read(until, 1)  # until it holds the line
    elif behaviour == "crash":
        os.kill(os.getpid(), signal.SIGKILL)
    elif behaviour == "fail":
        print(f"it broke, {os.environ.get('MY_TOKEN')}", file=sys.stderr)
        return 3
    elif behaviour == "environment":
        print(f"where: {Path.cwd()} {os.environ['SETTING']} {sys.stdin.read()!r}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
