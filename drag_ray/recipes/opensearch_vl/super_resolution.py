"""A small image with more pixels: by a model of the user's, or else by Lanczos interpolation and an unsharp mask."""

from PIL import Image, ImageFilter
from pydantic import Field

from drag_ray.recipes.opensearch_vl.enlarging_model import EnlargingModel, load_enlarging_model
from drag_ray.tools.config import ToolOptions
from drag_ray.tools.images.arguments import ImageArguments
from drag_ray.tools.images.rollout_images import check_size
from drag_ray.tools.observation import Observation, ObservedImage
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace

MAX_FACTOR = 4
_PERCENT = 80
_THRESHOLD = 2


class SuperResolutionArguments(ImageArguments):
    """The factor of enlargement."""

    factor: int = Field(default=2, ge=2, le=MAX_FACTOR)
    """How many times wider and higher the image becomes."""


def make_tool(options: ToolOptions) -> Tool:
    """The tool, with the model that the options name.

    Raises:
        ConfigError: it cannot be used.
    """
    path = options.super_resolution.model
    model = load_enlarging_model(path) if path else None

    def super_resolve(arguments: SuperResolutionArguments, workspace: Workspace) -> Observation:
        image = workspace.images.open(arguments.image)
        size = (image.width * arguments.factor, image.height * arguments.factor)
        check_size(*size)
        larger = _enlarge(image, size, model) if model else _interpolate(image, size, arguments.factor)
        caption = f"{arguments.image} with {arguments.factor} times the resolution"
        return Observation(f"{larger.width} x {larger.height} pixels.", (ObservedImage(larger, caption),))

    return Tool(
        name="super_resolution",
        description="See a small image with more pixels.",
        arguments=SuperResolutionArguments,
        run=super_resolve,
        shows_images=True,
    )


def _enlarge(image: Image.Image, size: tuple[int, int], model: EnlargingModel) -> Image.Image:
    """Enlarge the image by the model, and resize it where the model's scale is another."""
    made = model.enlarge(image)
    return made if made.size == size else made.resize(size, Image.Resampling.LANCZOS)


def _interpolate(image: Image.Image, size: tuple[int, int], factor: int) -> Image.Image:
    return image.resize(size, Image.Resampling.LANCZOS).filter(ImageFilter.UnsharpMask(factor, _PERCENT, _THRESHOLD))
