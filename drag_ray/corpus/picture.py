"""Untrusted pictures: checked before they are decoded, turned upright, in RGB, scaled down to a pixel limit."""

import io
import math
from collections.abc import Callable
from typing import TypeVar

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from drag_ray.errors import DataError

MAX_BYTES = 20 * 2**20
MAX_PIXELS = 50_000_000
_MAX_EDGE = 16_000
"""of a picture that is made: a JPEG cannot be longer than 65,500 pixels, and nothing reads one that is nearly as long"""
_FORMATS = ("PNG", "JPEG", "TIFF", "WEBP", "GIF", "BMP")

T = TypeVar("T")


def read_picture(data: bytes, max_pixels: int) -> Image.Image:
    """The picture in `data`, scaled down to `max_pixels`. Raises DataError: it is none, is damaged or animated, or would take too
    much memory."""
    return _open(data, lambda image: fit_picture(to_rgb(image), max_pixels))


def check_picture(data: bytes) -> None:
    """DataError where the header in `data` is none of a picture that `read_picture` takes; the rest of it is not decoded."""
    _open(data, lambda image: None)


def _open(data: bytes, use: Callable[[Image.Image], T]) -> T:
    if len(data) > MAX_BYTES:
        raise DataError(f"got {len(data):,} bytes, expected a picture of at most {MAX_BYTES:,}")
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            _check(image)
            return use(image)
    except DataError:
        raise
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        large = isinstance(error, Image.DecompressionBombError)
        reason = f"a picture of more than {MAX_PIXELS:,} pixels" if large else "no picture"
        raise DataError(f"got {reason}, expected one of {', '.join(_FORMATS)} that can be read") from None
    except Exception as error:  # Pillow checks little of what a damaged header says, and fails where it first uses it
        raise DataError(f"the picture cannot be read ({type(error).__name__}: {error!s:.200})") from None


def compute_scale(width: float, height: float, scale: float, max_pixels: int) -> float:
    """The scale, at most `scale`, at which a page of `width` x `height` has `max_pixels` or less, edges rounded up.

    No edge becomes longer than 16,000 pixels either.
    """
    # ceil(x) < x + 1, so the largest root of (width s + 1)(height s + 1) = max_pixels is safe.
    area, edges = width * height, width + height
    fitting = (math.sqrt(edges**2 + 4 * area * (max_pixels - 1)) - edges) / (2 * area)
    return min(scale, fitting, (_MAX_EDGE - 1) / max(width, height))


def fit_picture(image: Image.Image, max_pixels: int, max_scale: float = 1.0) -> Image.Image:
    """The picture with at most `max_pixels`, scaled by at most `max_scale`; pixels are never added."""
    scale = compute_scale(image.width, image.height, max_scale, max_pixels)
    if scale == 1.0:
        return image
    size = (math.ceil(image.width * scale), math.ceil(image.height * scale))
    return image.resize(size, Image.Resampling.LANCZOS)


def _check(image: Image.Image) -> None:
    """Check pixels and frames by the header alone."""
    num_pixels = image.width * image.height
    if num_pixels > MAX_PIXELS:
        raise DataError(f"got a picture of {image.width:,} x {image.height:,} pixels, expected at most {MAX_PIXELS:,}")
    if getattr(image, "n_frames", 1) > 1 and image.format != "MPO":
        raise DataError("got a picture of several frames, expected one. Extract the frame to use.")


def to_rgb(image: Image.Image) -> Image.Image:
    """The image upright, on white where it is transparent."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode.startswith("I;16"):  # Pillow would clip it to the lowest 8 bits
        upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
    if upright.has_transparency_data:
        white = Image.new("RGBA", upright.size, "white")
        upright = Image.alpha_composite(white, upright.convert("RGBA"))
    return upright.convert("RGB")
