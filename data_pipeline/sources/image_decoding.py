"""From an encoded image to its pixels: TensorFlow's decoders, and OpenCV."""

from __future__ import annotations

from typing import Any, List, Optional

import tensorflow as tf

from ipulaunch.configs.errors import NotReadyError

SIDE = 224
SHORTER_SIDE = 256  # of a validation image, before its centre of SIDE is cut out
CHANNELS = 3


def crops(encoded: Any, are_png: Any, windows: Any) -> List[Any]:
    """The pixels in a window of each image. ImageNet has a single PNG, so most batches need no test per image."""
    numbers = range(encoded.shape[0])

    def jpeg(n: int) -> Any:
        return tf.io.decode_and_crop_jpeg(encoded[n], windows[n], CHANNELS)

    def png(n: int) -> Any:
        top, left, height, width = tf.unstack(windows[n])
        return tf.slice(tf.io.decode_png(encoded[n], CHANNELS), [top, left, 0], [height, width, CHANNELS])

    def either(n: int) -> Any:
        return tf.cond(are_png[n], lambda: png(n), lambda: jpeg(n))

    found: List[Any] = tf.cond(
        tf.reduce_any(are_png), lambda: [either(n) for n in numbers], lambda: [jpeg(n) for n in numbers]
    )
    return found


def validation_image(side: int, encoded: Any, is_png: Any, window: Any) -> Any:
    """The centre of the image scaled to a shorter side of 256/224 of `side`, with the exact DCT."""

    def jpeg() -> Any:
        return tf.io.decode_jpeg(encoded, 3, dct_method="INTEGER_ACCURATE")

    image = tf.cond(is_png, lambda: tf.io.decode_png(encoded, 3), jpeg)
    height, width = window[2], window[3]
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
        return str(error).split("}} ")[-1].split(" [Op:")[0].splitlines()[0]  # without the names of TensorFlow's nodes
    return None


def opencv() -> Any:
    """OpenCV, which scales crops; an error if it is missing."""
    try:
        import cv2
    except ImportError as error:
        raise NotReadyError(
            f"random crops of ImageNet's images need OpenCV, and {error}", hint="pip install 'ipulaunch[images]'"
        ) from error
    cv2.setNumThreads(1)  # the threads are ours, as many as this instance has cores
    return cv2
