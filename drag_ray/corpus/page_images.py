"""Pictures of pages: their store (see `image_store`), and the scale that they are drawn at."""

import math

DIR_NAME = "page_images"
# A JPEG cannot be longer than 65,500 pixels, and nothing reads one that is nearly as long.
_MAX_EDGE = 16_000


def compute_scale(width: float, height: float, scale: float, max_pixels: int) -> float:
    """The scale, at most `scale`, at which a page of `width` x `height` has `max_pixels` or less, edges rounded up.

    No edge becomes longer than 16,000 pixels either.
    """
    # ceil(x) < x + 1, so the largest root of (width s + 1)(height s + 1) = max_pixels is safe.
    area, edges = width * height, width + height
    fitting = (math.sqrt(edges**2 + 4 * area * (max_pixels - 1)) - edges) / (2 * area)
    return min(scale, fitting, (_MAX_EDGE - 1) / max(width, height))
