"""What a build of ImageNet keeps beside its files, so that the same command continues it and another one is refused."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import Any, Dict, List, Mapping

from ipulaunch.configs.errors import UsageError
from ipulaunch.configs.runs.directory import write_whole
from ipulaunch.data_pipeline.tools.build_images import Images
from ipulaunch.data_pipeline.tools.preparation import Preparation

_NAME = ".ipulaunch-build.json"


class BuildState:
    """The images and options that a build began with, and the images that it has left out of its files."""

    def __init__(self, out: Path, images: Mapping[str, Images], shards: int, preparation: Preparation) -> None:
        """Refuse an `out` that was begun with other images or options; remove what a killed build left half-written."""
        names = [f"{split} {name}" for split, part in images.items() for name in part.names()]
        digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
        self.place, self.lock = out / _NAME, threading.Lock()
        self.left_out: Dict[str, List[str]] = {}  # by file, what is wrong with each image
        self.begun = {"images": digest, "shards": shards, **preparation.state}
        self.count = sum(part.count for part in images.values())
        if self.place.exists():
            self._go_on()
        elif next(out.iterdir(), None) is not None:
            raise UsageError(f"{out} exists and is not an empty directory", hint="give --out a new directory")
        else:
            self._save()

    def leave_out(self, file: str, messages: List[str]) -> None:
        """Keep what is left out of a file, before the file is there."""
        with self.lock:
            if messages != self.left_out.get(file, []):
                self.left_out[file] = messages
                self._save()

    def _save(self) -> None:
        left_out = {"left_out": self.left_out} if self.left_out else {}
        write_whole(self.place, json.dumps({**self.begun, "count": self.count, **left_out}, indent=1) + "\n")

    def _go_on(self) -> None:
        out = self.place.parent
        try:
            before = json.loads(self.place.read_text(encoding="utf-8"))
        except ValueError:
            before = {}
        changed = [name.replace("_", " ") for name, value in self.begun.items() if before.get(name) != value]
        if changed:
            hint = "give the same options to continue it, or --out another directory"
            if "images" in changed:
                changed[0] += _difference(before.get("count"), self.count)
                hint = (
                    "to continue it, put back what is missing and remove what was added, or give --out a new directory"
                )
            raise UsageError(f"{out} holds a build that was begun with other {' and '.join(changed)}", hint=hint)
        self.left_out = before.get("left_out", {})
        for leftover in out.glob(".*-*-of-*.*"):
            leftover.unlink()


def _difference(before: Any, now: int) -> str:
    """How many images there are now, compared with before, if that is known."""
    if not isinstance(before, int):
        return ""
    if before == now:
        return f" (there are still {now}, with other names or classes)"
    return f" (there are {now} now, {abs(now - before)} {'fewer' if now < before else 'more'})"
