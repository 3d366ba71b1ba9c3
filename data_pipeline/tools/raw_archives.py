"""The archives of the ImageNet challenge: where each image lies in them. This module never unpacks anything to disk."""

from __future__ import annotations

import contextlib
import os
import tarfile
from pathlib import Path, PurePath, PurePosixPath
from typing import IO, Any, Dict, Iterator, List, NamedTuple, Optional

from ipulaunch.configs.errors import DataError

_SUFFIXES = {".jpeg", ".jpg", ".png"}
_REPLACE = (
    "replace it by a good image of the same name and run the same line again, which continues; to do without it,"
    " remove it and give --out a new directory, or give --bad-records skip"
)
_FETCH = "fetch the archive again and run the same line again, which continues"
TRAIN, VALIDATION = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar"


def is_image(name: str) -> bool:
    """Whether a file of this name is an image; one that starts with a dot is not."""
    return PurePath(name).suffix.lower() in _SUFFIXES and not name.startswith(".")


class RawFile(NamedTuple):
    """The bytes of one image."""

    path: Path  # of the file, or of the archive
    name: str
    offset: int = 0
    size: Optional[int] = None  # None: the whole file

    def __str__(self) -> str:
        return str(self.path) if self.size is None else f"{self.path}: {self.name} at byte {self.offset}"

    @property
    def remedy(self) -> str:
        """What to do if it is damaged."""
        return _REPLACE if self.size is None else _FETCH

    def read(self) -> bytes:
        if self.size is None:
            return self.path.read_bytes()
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            data = os.pread(descriptor, self.size, self.offset)
        finally:
            os.close(descriptor)
        if len(data) != self.size:
            raise DataError(f"{self}: {len(data)} of {self.size} bytes are there", hint="fetch the archive again")
        return data


def images_by_class(archive: Path) -> Dict[str, List[RawFile]]:
    """The images of an archive of archives, one for each class and named after it."""
    found: Dict[str, List[RawFile]] = {}
    with _opened(archive) as outer:
        for member in _files(outer, archive):
            name = PurePosixPath(member.name)
            if name.suffix != ".tar" or name.name.startswith("."):
                continue
            if name.stem in found:
                raise DataError(f"{archive} holds {name.name} twice", hint="fetch the archive again")
            part = outer.extractfile(member)
            with _opened(archive, part, name.name) as inner:
                found[name.stem] = _images(inner, archive, member.offset_data)
    return {synset: found[synset] for synset in sorted(found)}


def images_in(archive: Path) -> List[RawFile]:
    """The images of a plain archive, in the order of their names."""
    with _opened(archive) as opened:
        return _images(opened, archive, 0)


def _images(opened: tarfile.TarFile, archive: Path, start: int) -> List[RawFile]:
    images = []
    for member in _files(opened, archive):
        name = PurePosixPath(
            member.name
        ).name  # only the last part of a path is used, so that no path can lead elsewhere
        if is_image(name):
            images.append(RawFile(archive, name, start + member.offset_data, member.size))
    return sorted(images, key=lambda image: image.name)


def _files(opened: tarfile.TarFile, archive: Path) -> Iterator[tarfile.TarInfo]:
    for member in opened:
        if member.issparse():
            raise DataError(f"{archive}: {member.name} is stored with holes, unlike the published archives")
        if member.isreg():
            yield member
        opened.members.clear()  # type: ignore[attr-defined]  # tarfile keeps all it has seen, here 1.3 million
    # tarfile takes a damaged header for the end, and would miss everything after it.
    assert opened.fileobj is not None
    opened.fileobj.seek(opened.offset)
    if opened.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError(f"neither a header nor the end at byte {opened.offset}")


@contextlib.contextmanager
def _opened(archive: Path, part: Optional[IO[bytes]] = None, name: str = "") -> Iterator[tarfile.TarFile]:
    """An archive, or one inside it. Only uncompressed ones: an image must lie in the file as it is."""
    where = f"{archive}: {name}" if name else str(archive)
    about: Dict[str, Any] = {"fileobj": part} if part is not None else {"name": archive}
    try:
        with tarfile.open(mode="r:", **about) as opened:
            yield opened
    except (tarfile.TarError, EOFError) as error:
        hint = "it must be the .tar as published, whole and not packed any further; fetch it again"
        raise DataError(f"{where} cannot be read as an archive: {error}", hint=hint) from error
