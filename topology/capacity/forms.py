"""The forms in which samples are stored: how large they are, and how fast a core turns them into what is sent.

docs/capacity.md names where each number comes from.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional, Tuple

from ipulaunch.configs.settings.workload import WorkloadSettings
from ipulaunch.topology.capacity.chain import ASSUMED, PUBLISHED, Quantity
from ipulaunch.topology.capacity.ranges import Range, exactly
from ipulaunch.topology.machines.published import IMAGENET_JPEG_BYTES

JPEG, SMALL_JPEG, PIXELS = "jpeg", "jpeg-256", "pixels-256"
RECORDS, GZIP = "records", "gzip"
DECODE, UNPACK, READ, GENERATE = "decode", "unpack", "read", "generate"

# JPEGs of 500 x 375 pixels that a core decodes, crops and scales in a second.
JPEGS_PER_CORE = Range(500, 1000)
# Bytes of unpacked volumes that a core makes in a second: from gzip with the standard library and with isal, and from
# records that are not packed.
ZLIB_BYTES_PER_CORE = 21 * 16.8e6
ISAL_BYTES_PER_CORE = 63 * 16.8e6
RECORD_BYTES_PER_CORE = Range(2e9, 7e9)
_GZIP_RATIO = 5.8  # of volumes of counts
UNPACKED_COMMAND = "the set unpacked with gunzip"


class Form(NamedTuple):
    """How samples are stored, beside another form of the same set."""

    preparation: str
    command: str  # that makes the set
    size: Range  # times the size of a sample in the usual form
    speed: Range  # times the samples/s of a core in the usual form


# The first of each is the usual one, which the others are compared with.
IMAGES: Dict[str, Form] = {
    JPEG: Form(DECODE, "", exactly(1), exactly(1)),
    SMALL_JPEG: Form(
        DECODE,
        "ipulaunch data build imagenet --records SET --out NEW --shorter-side 256",
        Range(0.3, 0.4),
        Range(1.7, 2.05),
    ),
    PIXELS: Form(
        READ,
        "ipulaunch data build imagenet --records SET --out NEW --shorter-side 256 --pixels",
        exactly(262 / 110),
        Range(4, 8),
    ),
}
VOLUMES: Dict[str, Form] = {
    RECORDS: Form(READ, UNPACKED_COMMAND, exactly(1), exactly(1)),
    GZIP: Form(UNPACK, "", exactly(1 / _GZIP_RATIO), exactly(1)),
}


def forms_of(settings: WorkloadSettings, workload: str) -> Tuple[str, ...]:
    """The forms that the set of a workload can have, the usual one first; none where samples lie in memory."""
    if settings.data.is_synthetic or settings.data.synthetic_data is not None:
        return ()
    return tuple(FORMS.get(workload, ()))


def stored_bytes(form: str, volume_bytes: int) -> Optional[Quantity]:
    """The bytes of a sample on disk."""
    if form in IMAGES:
        source = "ImageNet has 1,281,167 images in about 140 GB"
        size = IMAGES[form].size.times(IMAGENET_JPEG_BYTES)
        return Quantity(size, PUBLISHED if form == JPEG else ASSUMED, source)
    if form == RECORDS:
        return Quantity(exactly(volume_bytes), PUBLISHED, "a volume as it is, in 16 bits")
    if form == GZIP:
        return Quantity(
            VOLUMES[GZIP].size.times(volume_bytes), ASSUMED, f"counts pack to about 1 / {_GZIP_RATIO} with gzip"
        )
    return None


def known_speed(form: str, volume_bytes: int) -> Optional[Quantity]:
    """The samples/s of a core, by measurements on other machines."""
    if form in IMAGES:
        text = "500 to 1,000 JPEGs of 500 x 375 a core" + ("" if form == JPEG else ", and prepared ones by comparison")
        return Quantity(JPEGS_PER_CORE.times_range(IMAGES[form].speed), ASSUMED, text)
    if form == RECORDS:
        text = "2 to 7 GB/s a core, read from the page cache"
        return Quantity(RECORD_BYTES_PER_CORE.times(1 / volume_bytes), ASSUMED, text)
    if form == GZIP:
        rates = Range(ZLIB_BYTES_PER_CORE, ISAL_BYTES_PER_CORE).times(1 / volume_bytes)
        return Quantity(rates, ASSUMED, "0.35 GB/s a core with zlib, 1.06 with the extra [gzip]")
    return None


FORMS = {"imagenet": IMAGES, "cosmoflow": VOLUMES}
