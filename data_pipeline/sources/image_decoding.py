"""From an encoded image to its pixels: TensorFlow's decoders, simplejpeg, and OpenCV."""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import numpy as np
import tensorflow as tf

from ipulaunch.configs.errors import NotReadyError

SIDE = 224
SHORTER_SIDE = 256  # of a validation image, before its centre of SIDE is cut out
CHANNELS = 3
_INSTALL = "pip install 'ipulaunch[images]'"


class Undecodable(ValueError):
    """An image cannot be decoded."""


def crop(encoded: bytes, form: str, window: Sequence[int]) -> np.ndarray:
    """The pixels in a window of a JPEG or PNG, whatever its colours.

    `fancy_upscaling` stays on: without it, decoding crops ended TensorFlow 2.6 with a damaged heap.
    """
    top, left, height, width = window
    try:
        if form == "JPEG":
            pixels = tf.io.decode_and_crop_jpeg(encoded, window, CHANNELS).numpy()
        else:
            pixels = tf.io.decode_png(encoded, CHANNELS).numpy()[top : top + height, left : left + width]
    except tf.errors.InvalidArgumentError as error:
        raise Undecodable(_reason(error)) from error
    return np.ascontiguousarray(pixels)


def validation_image(side: int, encoded: Any, is_png: Any, whole: Any) -> Any:
    """The centre of the image scaled to a shorter side of 256/224 of `side`, with the exact DCT."""

    def jpeg() -> Any:
        return tf.io.decode_jpeg(encoded, 3, dct_method="INTEGER_ACCURATE")

    image = tf.cond(is_png, lambda: tf.io.decode_png(encoded, 3), jpeg)
    height, width = whole[0], whole[1]
    size = tf.stack([height, width]) * round(side * SHORTER_SIDE / SIDE) // tf.minimum(height, width)
    top, left = (size[0] - side) // 2, (size[1] - side) // 2
    # The op takes uint8, which saves a pass over the image.
    scaled = tf.raw_ops.ResizeBilinear(images=tf.expand_dims(image, 0), size=size, half_pixel_centers=True)
    centre = tf.slice(scaled[0], [top, left, 0], [side, side, CHANNELS])
    nearest = tf.cast(centre + 0.5, tf.uint8)  # values are at most 255
    return tf.ensure_shape(nearest, (side, side, CHANNELS))


def defect_of(encoded: bytes) -> Optional[str]:
    """Why an image cannot be decoded; None if it can.

    It decodes the whole image, which fails wherever a crop would: a crop may end above the place where an image is cut
    off. Images without their last bytes fail as well.
    """
    try:
        tf.io.decode_image(encoded, CHANNELS, expand_animations=False)
    except tf.errors.InvalidArgumentError as error:
        return _reason(error)
    return None


def _reason(error: tf.errors.OpError) -> str:
    """What an op of TensorFlow's says, without the names of its nodes."""
    return str(error).split("}} ")[-1].split(" [Op:")[0].splitlines()[0]


def opencv() -> Any:
    """OpenCV, which scales crops; an error if it is missing."""
    try:
        import cv2
    except ImportError as error:
        raise NotReadyError(f"random crops of ImageNet's images need OpenCV, and {error}", hint=_INSTALL) from error
    cv2.setNumThreads(1)  # the threads are ours, as many as this instance has cores
    return cv2


def jpeg_decoder() -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """simplejpeg's decoder, from (a JPEG, memory) to pixels in this memory; an error if it is missing.

    Its pixels are TensorFlow's, as both take libjpeg-turbo's fast DCT. Like TensorFlow's it goes on after what
    libjpeg-turbo warns about. Its ValueError is about an image that it does not take.
    """
    try:
        import simplejpeg
    except ImportError as error:
        raise NotReadyError(f"random crops of ImageNet's images need simplejpeg, and {error}", hint=_INSTALL) from error
    decode = simplejpeg.decode_jpeg
    return lambda encoded, room: decode(encoded, "RGB", True, False, 0, 0, 1.0, room, False)
