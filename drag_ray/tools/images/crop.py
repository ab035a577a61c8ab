"""A part of an image, as it is."""

from PIL import Image

from drag_ray.tools.images.image_tool import BoxArguments, Changed, format_numbers, make_image_tool, to_pixels


def crop(image: Image.Image, arguments: BoxArguments) -> Changed:
    """The part of an image within a box. Raises ToolError where the box is empty."""
    return Changed(image.crop(to_pixels(arguments.box, image)), f"crop of {arguments.image} at {format_numbers(arguments.box)}")


TOOL = make_image_tool("crop", "See a part of an image by itself.", BoxArguments, crop)
