"""Prints its arguments and the variables whose names start with HOSTILE, each instance under its own number."""

from __future__ import annotations

import json
import os
import sys

if __name__ == "__main__":
    variables = {name: value for name, value in os.environ.items() if name.startswith("HOSTILE")}
    shown = {"instance": os.environ.get("OMPI_COMM_WORLD_RANK"), "words": sys.argv[1:], "variables": variables}
    os.write(1, json.dumps(shown).encode() + b"\n")
