"""Prints its arguments as JSON, and the variable HOSTILE where it is set, each instance under its own number."""

from __future__ import annotations

import json
import os
import sys

if __name__ == "__main__":
    shown = {
        "instance": os.environ.get("OMPI_COMM_WORLD_RANK"),
        "words": sys.argv[1:],
        "hostile": os.environ.get("HOSTILE"),
    }
    os.write(1, json.dumps(shown).encode() + b"\n")
