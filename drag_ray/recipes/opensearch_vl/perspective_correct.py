"""A flat thing that was photographed at an angle, seen from the front."""

import math
from typing import Annotated

import numpy as np
from PIL import Image
from pydantic import Field

from drag_ray.errors import ToolError
from drag_ray.tools.images.image_tool import UNITS, Changed, ImageArguments, Place, make_image_tool
from drag_ray.tools.images.rollout_images import MAX_PIXELS

Point = Annotated[list[Place], Field(min_length=2, max_length=2)]
_Corners = list[tuple[float, float]]
_MIN_TURN = 0.001
"""Of a corner: twice the area of the triangle that it makes with its neighbours, as a share of the image."""


class PerspectiveArguments(ImageArguments):
    """The thing's corners."""

    corners: list[Point] = Field(min_length=4, max_length=4)
    """Its upper left, upper right, lower right and lower left corner, each [x, y] in thousandths of the image."""


def correct_perspective(image: Image.Image, arguments: PerspectiveArguments) -> Changed:
    """The part of an image between four corners, as a rectangle. Raises ToolError where the corners are not those of a convex
    quadrilateral in this order."""
    places = [(x / UNITS, y / UNITS) for x, y in arguments.corners]
    _check(places)
    corners = [(x * image.width, y * image.height) for x, y in places]
    width, height = _measure(corners)
    straight = image.transform(
        (width, height), Image.Transform.PERSPECTIVE, _solve(corners, width, height), Image.Resampling.BICUBIC, fillcolor="white"
    )
    return Changed(straight, f"part of {arguments.image} from the front")


def _check(corners: _Corners) -> None:
    """Require clockwise, convex corners: all turn right."""
    for place in range(4):
        (ax, ay), (bx, by), (cx, cy) = (corners[(place + step) % 4] for step in range(3))
        if (bx - ax) * (cy - by) - (by - ay) * (cx - bx) < _MIN_TURN:
            raise ToolError(
                "the corners are not those of a convex quadrilateral: give upper left, upper right, lower right, lower left"
            )


def _measure(corners: _Corners) -> tuple[int, int]:
    """Width and height of the rectangle: the longer ones of opposite edges, with as many pixels as are allowed."""
    top, right, bottom, left = (math.dist(corners[place], corners[(place + 1) % 4]) for place in range(4))
    width, height = max(top, bottom), max(left, right)
    scale = min(1.0, math.sqrt(MAX_PIXELS / (width * height)))
    return max(1, int(width * scale)), max(1, int(height * scale))


def _solve(corners: _Corners, width: int, height: int) -> list[float]:
    """The eight numbers of the projection that takes the rectangle's corners to the image's, as Pillow wants them."""
    targets = [(0, 0), (width, 0), (width, height), (0, height)]
    rows, values = [], []
    for (u, v), (x, y) in zip(targets, corners, strict=True):
        rows += [[u, v, 1, 0, 0, 0, -x * u, -x * v], [0, 0, 0, u, v, 1, -y * u, -y * v]]
        values += [x, y]
    return np.linalg.solve(np.array(rows, dtype=float), np.array(values, dtype=float)).tolist()


TOOL = make_image_tool(
    "perspective_correct",
    "See a flat thing in an image, such as a sign or a page, from the front.",
    PerspectiveArguments,
    correct_perspective,
)
