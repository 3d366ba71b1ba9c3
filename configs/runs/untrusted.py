"""Reading text that anybody may have written: regular files of a bounded size, and JSON that costs what it weighs."""

from __future__ import annotations

import errno
import functools
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Union

if TYPE_CHECKING:
    import json

MOST = 1 << 24  # bytes of a record or a plan; one of 65536 instances has 13 million
_LONGEST_NUMBER = 40  # digits; before Python 3.11 a million of them take minutes


def read_text(path: Path, most: int = MOST) -> str:
    """The text of a small file. Raises OSError for a larger one, and for a device or a pipe, which may have no end."""
    with open_regular(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most} bytes", str(path))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "it is not text", str(path)) from None


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read it, without waiting for the other end of a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return os.fdopen(descriptor, "rb")
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def parse_json(text: Union[str, bytes]) -> Any:
    """The value in a JSON text, of any shape. Raises ValueError for whatever is wrong with the text."""
    import json  # here, because a dry run needs none

    text = text.decode("utf-8") if isinstance(text, bytes) else text
    try:
        value = _decoder().decode(text)
        if "\\" in text and "\\ud" in text.lower():  # half a character, which can neither be printed nor written
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return value


@functools.lru_cache(maxsize=None)  # json.loads() would make one for each text
def _decoder() -> json.JSONDecoder:
    import json

    return json.JSONDecoder(parse_int=_whole)


def _whole(digits: str) -> int:
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError(f"a number has {len(digits)} digits")
    return int(digits)
