"""What becomes of a request: the codes of TensorFlow Serving, over gRPC and over HTTP."""

from __future__ import annotations

from typing import Dict, Tuple

# By gRPC's name of a code: its number, which StatusProto has, and the status of HTTP.
_CODES: Dict[str, Tuple[int, int]] = {
    "OK": (0, 200),
    "INVALID_ARGUMENT": (3, 400),
    "DEADLINE_EXCEEDED": (4, 504),
    "NOT_FOUND": (5, 404),
    "RESOURCE_EXHAUSTED": (8, 429),
    "FAILED_PRECONDITION": (9, 400),
    "ABORTED": (10, 409),
    "OUT_OF_RANGE": (11, 400),
    "UNIMPLEMENTED": (12, 501),
    "INTERNAL": (13, 500),
    "UNAVAILABLE": (14, 503),
}
_NAMES = {number: name for name, (number, _) in _CODES.items()}


class ServingError(Exception):
    """A request that is refused, or has failed."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message

    @property
    def http_status(self) -> int:
        return _CODES[self.code][1]


def number_of(code: str) -> int:
    return _CODES[code][0]


def name_of(number: int) -> str:
    """The code of an error of TensorFlow; one that is not listed is an internal error."""
    return _NAMES.get(number, "INTERNAL")
