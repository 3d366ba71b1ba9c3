"""An mpirun that behaves as FAKE_MPIRUN says. Its processes hold the lifeline, if there is one, once they are set up.

What hangs ends by itself after a quarter of an hour, so that a failing test leaves nothing behind either.
"""

from __future__ import annotations

import os
import signal
import sys
import time


def hold_lifeline() -> None:
    if "LIFELINE" in os.environ:
        os.write(os.open(os.environ["LIFELINE"], os.O_WRONLY), b"%d\n" % os.getpid())


def hang() -> None:
    hold_lifeline()
    time.sleep(900)


def ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def escape() -> None:
    """Out of the engine's session and pipes, and deaf."""
    os.setsid()
    ignore_signals()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)


def child(step) -> None:  # type: ignore[no-untyped-def]
    """Start a process that takes a step and hangs; it has taken it when this returns."""
    ready, told = os.pipe()
    if os.fork():
        os.read(ready, 1)
        return
    step()
    hold_lifeline()
    os.write(told, b".")
    time.sleep(900)
    os._exit(0)


def say(text: str) -> None:
    os.write(1, text.encode() + b"\n")


def behave(how: str) -> int:
    if how == "print":
        say("[1,0]<stdout>: one")
        say("[1,1]<stdout>: two")
        say("[1,0]<stderr>: three")
        say("words of the engine")
    elif how == "show":
        say(f"[1,0]<stdout>: {sys.argv[1:]}")
    elif how == "flood":
        say("\n".join(20000 * ["[1,0]<stdout>: " + 60 * "x"]))
    elif how == "crash":
        say("[1,1]<stderr>: RuntimeError: broken")
        return 3
    elif how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "hang":
        hang()
    elif how == "deaf":
        ignore_signals()
        hang()
    elif how == "family":
        child(lambda: child(escape))
        hang()
    elif how == "orphans":
        child(escape)
        child(ignore_signals)
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        say("mpirun (Open MPI) 5.0.3")
        sys.exit(0)
    sys.exit(behave(os.environ.get("FAKE_MPIRUN", "print")))
