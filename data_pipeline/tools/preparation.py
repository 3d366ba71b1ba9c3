"""How the images of a set are prepared: as they are, smaller, or as plain pixels; training and validation alike.

The shorter side is scaled as validation scales it, by the same operation: validation of plain pixels is then the same
as on the published files, bit for bit, and that of JPEGs differs by what the second coding loses.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional

import tensorflow as tf

from ipulaunch.configs.errors import UsageError
from ipulaunch.data_pipeline.records.pixels import FORMAT, encode_pixels
from ipulaunch.data_pipeline.sources.image_decoding import Undecodable, defect_of
from ipulaunch.data_pipeline.sources.image_header import ImageHeader, NotAnImage, read_header

DEFAULT_QUALITY = 95  # of smaller images; with 90, users have reported less accuracy
_CONVERTED_QUALITY = 96  # of PNG and CMYK, and of images with another longest side


class Prepared(NamedTuple):
    """An image as it goes into a record, and whether it is another one than before."""

    encoded: bytes
    header: ImageHeader
    is_new: bool


class Preparation(NamedTuple):
    """What is done to every image."""

    longest_side: Optional[int] = None
    shorter_side: Optional[int] = None
    quality: Optional[int] = None
    pixels: bool = False

    @property
    def state(self) -> Dict[str, Any]:
        """What a build that goes on shares with its beginning; None as in builds that had no such option."""
        return {**self._asdict(), "pixels": self.pixels or None}

    @property
    def text(self) -> str:
        """What the records and the run say; empty for images in their published form."""
        size = "" if self.shorter_side is None else f"shorter side {self.shorter_side}, "
        if self.pixels:
            return f"{size}pixels"
        return f"{size}JPEG quality {self.quality}" if size else ""

    def apply(self, data: bytes) -> Prepared:
        """The image, prepared. A JPEG in RGB or grey that is small enough stays as it is, unless it becomes pixels."""
        try:
            published = _published(data, read_header(data))
            decoded = _decoded(published)  # also if it stays: an image that is cut off would end a training
        except (NotAnImage, tf.errors.InvalidArgumentError) as error:
            raise Undecodable(str(error) if isinstance(error, NotAnImage) else defect_of(data)) from error
        header = read_header(published)
        size = self._size(header)
        if size is None and not self.pixels:
            return Prepared(published, header, published is not data)
        if size is not None:
            decoded = _scaled(decoded, size, method="bilinear" if self.shorter_side else "area")
        if self.pixels:
            height, width, _ = decoded.shape
            return Prepared(encode_pixels(decoded.numpy()), ImageHeader(FORMAT, height, width, 3), True)
        encoded: bytes = self._as_jpeg(decoded)
        return Prepared(encoded, read_header(encoded), True)

    def _as_jpeg(self, pixels: Any) -> bytes:
        """Smaller images have half the colours, as nearly all published ones, which also decode faster."""
        is_prepared = self.shorter_side is not None
        quality = self.quality if is_prepared else _CONVERTED_QUALITY
        encoded: bytes = tf.io.encode_jpeg(pixels, quality=quality, chroma_downsampling=is_prepared).numpy()
        return encoded

    def _size(self, header: ImageHeader) -> Optional[List[int]]:
        """The new size of an image; None if it keeps its own."""
        sides = (header.height, header.width)
        if self.shorter_side is not None and min(sides) > self.shorter_side:
            return [side * self.shorter_side // min(sides) for side in sides]
        if self.longest_side is not None and max(sides) > self.longest_side:
            return [max(1, round(side * (self.longest_side / max(sides)))) for side in sides]
        return None


def preparation_of(options: Dict[str, Any]) -> Preparation:
    """What the options ask for; an error for those that do not go together."""
    found = Preparation(
        options.get("longest_side"), options.get("shorter_side"), options.get("quality"), bool(options.get("pixels"))
    )
    if found.longest_side and (found.shorter_side or found.pixels):
        raise UsageError("--longest-side goes neither with --shorter-side nor with --pixels", hint="leave one out")
    if found.quality is not None and (found.pixels or found.shorter_side is None):
        raise UsageError("--quality is that of the JPEGs which --shorter-side makes", hint="leave it out")
    if found.shorter_side and not found.pixels:
        return found._replace(quality=found.quality or DEFAULT_QUALITY)
    return found


def _published(data: bytes, header: ImageHeader) -> bytes:
    """The image as the published set has it: PNG and CMYK images become RGB JPEGs."""
    if header.format == FORMAT:
        raise NotAnImage("plain pixels already; prepare the set that they were made of")
    if header.format == "JPEG" and header.channels in (1, 3):
        return data
    pixels = tf.io.decode_image(data, channels=3, expand_animations=False)
    converted: bytes = tf.io.encode_jpeg(pixels, quality=_CONVERTED_QUALITY, chroma_downsampling=False).numpy()
    return converted


def _decoded(data: bytes) -> Any:
    """The pixels as validation decodes them."""
    return tf.io.decode_jpeg(data, 3, dct_method="INTEGER_ACCURATE")


def _scaled(pixels: Any, size: List[int], *, method: str) -> Any:
    if method == "area":
        return tf.cast(tf.round(tf.image.resize(pixels, size, method=method)), tf.uint8)
    scaled = tf.raw_ops.ResizeBilinear(images=tf.expand_dims(pixels, 0), size=size, half_pixel_centers=True)[0]
    return tf.cast(scaled + 0.5, tf.uint8)
