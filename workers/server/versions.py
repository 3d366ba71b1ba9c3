"""The versions of a model: the newest one in its directory is served; it replaces the one before without a gap."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Protocol, Tuple

from ipulaunch.configs.exports import servable_versions
from ipulaunch.data_pipeline.reported import Report
from ipulaunch.workers.server.batching import THREADS, Arrays, Batcher
from ipulaunch.workers.server.saved_model import Signature
from ipulaunch.workers.server.status import ServingError

LOADING, AVAILABLE, UNLOADING, END = 20, 30, 40, 50  # ModelVersionStatus.State
STATES = {LOADING: "LOADING", AVAILABLE: "AVAILABLE", UNLOADING: "UNLOADING", END: "END"}

Fingerprint = Tuple[Tuple[str, int, int], ...]


class Model(Protocol):
    """A model in memory."""

    signatures: Dict[str, Signature]

    def run(self, name: str, inputs: Arrays) -> Arrays: ...

    def close(self) -> None: ...


class Status(NamedTuple):
    """The state of one version, and the error that ended it."""

    state: int
    code: str = "OK"
    message: str = ""


class Version:
    """A version that answers requests."""

    def __init__(self, number: int, model: Model) -> None:
        self.number, self.model = number, model
        self._batchers: Dict[str, Batcher] = {}
        self._unbatched = ThreadPoolExecutor(THREADS)
        self._lock = threading.Lock()

    def submit(self, name: str, inputs: Arrays, size: int) -> Future[Arrays]:
        """The outputs of a signature: in batches if it is made for a batch, else each request alone."""
        batch = self.model.signatures[name].batch
        if batch is None:
            return self._unbatched.submit(self.model.run, name, inputs)
        with self._lock:
            if name not in self._batchers:
                self._batchers[name] = Batcher(lambda inputs: self.model.run(name, inputs), batch)
        return self._batchers[name].submit(inputs, size)

    def close(self) -> None:
        """Answer what is in, and free the model."""
        for batcher in list(self._batchers.values()):
            batcher.close()
        self._unbatched.shutdown()
        self.model.close()


class Versions:
    """The directory of a model, and what of it is served: the newest version that loads."""

    def __init__(self, base: Path, name: str, load: Callable[[Path], Model], report: Report) -> None:
        self.base, self.name = base, name
        self._load, self._report = load, report
        self._statuses: Dict[int, Status] = {}
        self._failed: Dict[int, Fingerprint] = {}  # not tried again before they change
        self._current: Optional[Version] = None
        self._lock = threading.Lock()

    @property
    def is_available(self) -> bool:
        return self._current is not None

    def refresh(self) -> None:
        """Serve the newest version that is there. Where none is there any more, the last one stays."""
        found = servable_versions(self.base)
        for number, directory in reversed(found):
            if self._current is not None and number == self._current.number:
                return
            if self._replace(number, directory):
                return

    def find(self, name: str, number: Optional[int]) -> Version:
        """The version that a request asks for; without a number, the one that is served."""
        with self._lock:
            current = self._current
        if current is None or name != self.name or number not in (None, current.number):
            wish = f"Latest({name})" if number is None else f"Specific({name}, {number})"
            raise ServingError("NOT_FOUND", f"Servable not found for request: {wish}")
        return current

    def statuses(self, name: str, number: Optional[int]) -> List[Tuple[int, Status]]:
        """The states of all versions that were ever seen, the newest first, or of one of them."""
        with self._lock:
            known = dict(self._statuses) if name == self.name else {}
        if number is not None:
            if number not in known:
                raise ServingError("NOT_FOUND", f"Could not find version {number} of model {name}")
            return [(number, known[number])]
        if not known:
            raise ServingError("NOT_FOUND", f"Could not find any versions of model {name}")
        return sorted(known.items(), reverse=True)

    def close(self) -> None:
        with self._lock:
            current, self._current = self._current, None
        if current is not None:
            current.close()

    def _replace(self, number: int, directory: Path) -> bool:
        """Serve this version in place of the present one; whether it could be loaded."""
        fingerprint = _fingerprint(directory)
        if self._failed.get(number) == fingerprint:
            return False
        self._set(number, Status(LOADING))
        try:
            model = self._load(directory)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a version must not end the server
            self._failed[number] = fingerprint
            code = error.code if isinstance(error, ServingError) else "INTERNAL"
            self._set(number, Status(END, code, str(error)))
            return False
        with self._lock:
            before, self._current = self._current, Version(number, model)
        self._set(number, Status(AVAILABLE))
        if before is not None:
            self._set(before.number, Status(UNLOADING))
            before.close()
            self._set(before.number, Status(END))
        return True

    def _set(self, number: int, status: Status) -> None:
        with self._lock:
            self._statuses[number] = status
        event = {"event": "version", "version": number, "state": STATES[status.state]}
        self._report({**event, "message": status.message})


def _fingerprint(directory: Path) -> Fingerprint:
    """What changes when somebody writes to a version."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    return tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)
