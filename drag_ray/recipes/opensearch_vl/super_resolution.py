"""A small image with more pixels: by a model of the user's, or else by Lanczos interpolation and an unsharp mask.

The model is one in ONNX, tried on a small image before it is taken, and run piece by piece. It takes pixels in RGB from 0 to 1 as
floats of shape (1, 3, height, width), of any height and width, and returns them as (1, 3, scale * height, scale * width), as
exports of ESRGAN, SwinIR and their like do.
"""

from functools import cache
from typing import Any

from PIL import Image, ImageFilter
from pydantic import Field

from drag_ray.errors import ConfigError, ToolError
from drag_ray.tools.config import ToolOptions
from drag_ray.tools.images.image_tool import Changed, ImageArguments, make_image_tool
from drag_ray.tools.images.rollout_images import check_size
from drag_ray.tools.tool import Tool

SCALES = (2, 3, 4)
_PIECE = 192
"""pixels of a piece's edge: what a model keeps of it in memory stays small, however large the image is"""
_MARGIN = 16
"""pixels around a piece that the model sees, too, so that no seam shows"""
_TRIED = (24, 32)
"""height and width of what a model is tried on"""


class EnlargingModel:
    """A model, ready to enlarge. Safe for several threads.

    Attributes:
        scale: how many times wider and higher it makes an image.

    Args:
        path: the file.

    Raises:
        ConfigError: there is none, ONNX Runtime cannot load it, or it does something else.
    """

    def __init__(self, path: str) -> None:
        import numpy as np
        import onnxruntime

        options: Any = getattr(onnxruntime, "SessionOptions")()  # noqa: B009 (pyright knows no such name)
        options.intra_op_num_threads = 1  # calls run beside each other
        options.log_severity_level = 4  # what it would write is raised, too
        try:
            self._session: Any = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            self._name = self._session.get_inputs()[0].name
            enlarged = self._run(np.zeros((*_TRIED, 3), np.uint8))
        except Exception as error:  # ONNX Runtime's errors have no class in common
            raise ConfigError(
                f"agent.super_resolution.model {path!r}: not a model that enlarges ({type(error).__name__}: {str(error)[:200]}). "
                "Expected an ONNX file that takes (1, 3, height, width) floats of any size."
            ) from error
        self.scale = enlarged.shape[0] // _TRIED[0]
        if enlarged.shape != (self.scale * _TRIED[0], self.scale * _TRIED[1], 3) or self.scale not in SCALES:
            raise ConfigError(
                f"agent.super_resolution.model {path!r}: it makes {enlarged.shape[1]} x {enlarged.shape[0]} pixels of "
                f"{_TRIED[1]} x {_TRIED[0]}; expected {SCALES[0]} to {SCALES[-1]} times as wide and high."
            )

    def enlarge(self, image: Image.Image) -> Image.Image:
        """An RGB image, `scale` times as wide and high. Raises ToolError where the model fails on it."""
        import numpy as np

        enlarged = Image.new("RGB", (image.width * self.scale, image.height * self.scale))
        for top in range(0, image.height, _PIECE):
            for left in range(0, image.width, _PIECE):
                x, y = max(0, left - _MARGIN), max(0, top - _MARGIN)
                right, bottom = min(image.width, left + _PIECE), min(image.height, top + _PIECE)
                seen = image.crop((x, y, min(image.width, right + _MARGIN), min(image.height, bottom + _MARGIN)))
                try:
                    made = self._run(np.asarray(seen), self.scale)
                except Exception as error:
                    raise ToolError("the model cannot enlarge this image") from error
                box = (left - x, top - y, right - x, bottom - y)
                piece = Image.fromarray(made).crop(tuple(self.scale * edge for edge in box))
                enlarged.paste(piece, (left * self.scale, top * self.scale))
        return enlarged

    def _run(self, pixels: Any, scale: int = 0) -> Any:
        """Run the model on pixels (height, width, 3), to such; with a `scale` as many times as high and wide. Raises ValueError
        where it makes no picture of them, or one of another size."""
        import numpy as np

        given = np.ascontiguousarray(pixels.transpose(2, 0, 1)[None], np.float32) / 255
        made: Any = self._session.run(None, {self._name: given})[0]
        if made.ndim != 4 or made.shape[:2] != (1, 3) or not np.isfinite(made).all():
            raise ValueError(f"it returns no picture but {made.shape} numbers")
        if scale and made.shape[2:] != (scale * pixels.shape[0], scale * pixels.shape[1]):
            raise ValueError(f"it returns {made.shape[2:]} pixels of {pixels.shape[:2]}, not {scale} times as many each way")
        return (made[0].transpose(1, 2, 0).clip(0, 1) * 255).round().astype(np.uint8)


load_enlarging_model = cache(EnlargingModel)
"""The model of a file, once a process. Raises what `EnlargingModel` does."""

MAX_FACTOR = 4
_PERCENT = 80
_THRESHOLD = 2


class SuperResolutionArguments(ImageArguments):
    """The factor of enlargement."""

    factor: int = Field(default=2, ge=2, le=MAX_FACTOR)
    """How many times wider and higher the image becomes."""


def make_tool(options: ToolOptions) -> Tool:
    """The tool, with the model that the options name. Raises ConfigError where it cannot be used."""
    path = options.super_resolution.model
    model = load_enlarging_model(path) if path else None

    def super_resolve(image: Image.Image, arguments: SuperResolutionArguments) -> Changed:
        size = (image.width * arguments.factor, image.height * arguments.factor)
        check_size(*size)
        made = model.enlarge(image) if model else image  # whose scale may be another
        larger = made if made.size == size else made.resize(size, Image.Resampling.LANCZOS)
        if not model:
            larger = larger.filter(ImageFilter.UnsharpMask(arguments.factor, _PERCENT, _THRESHOLD))
        return Changed(larger, f"{arguments.image} with {arguments.factor} times the resolution")

    description = "See a small image with more pixels."
    return make_image_tool("super_resolution", description, SuperResolutionArguments, super_resolve)
