"""The calls that docs/tools.md shows: what the model is told is what stands there."""

import json
from pathlib import Path

from PIL import Image
from tool_cases import Pages

from drag_ray.corpus.image_store import DIR_NAME, ImageStore, ImageStores
from drag_ray.tools.calls import CallLimits
from drag_ray.tools.images.rollout_images import RolloutImages
from drag_ray.tools.registry import load_toolset
from drag_ray.tools.workspace import Workspace
from drag_ray.types import Page

DOCUMENTED = (Path(__file__).parents[3] / "docs" / "tools.md").read_text()
CALLS = (
    ("read_page", {"file": "wing.pdf", "page": 1}, "wing.pdf#1 of 2"),
    ("read_page", {"file": "wing.pdf", "page": 9}, "no page 9 of 'wing.pdf': it has 2 pages"),
    ("grep", {"file": "wing.pdf", "text": "rpm"}, "1 line with 'rpm' in wing.pdf, 2 pages:"),
    ("grep", {"file": "wing.pdf", "text": "rpm"}, "wing.pdf#1: Speed 340 rpm"),
    ("grep", {"file": "x.pdf", "text": "rpm"}, "there is no file 'x.pdf'; give the name as a search shows it"),
    (
        "grep",
        {"file": "wing.pdf", "text": "(a", "is_pattern": True},
        "not a pattern that can be searched for: error: unclosed group",
    ),
    ("layout_parsing", {"file": "wing.pdf", "page": 2}, "wing.pdf#2 has no picture"),
    ("view_page", {"file": "wing.pdf", "page": 1}, "image_1: wing.pdf#1"),
    ("image_search", {"query": "rotor", "image": "image_1"}, "give either a query or the name of an image"),
    ("image_search", {"query": "rotor", "pages": 9}, "pages: Input should be less than or equal to 5"),
    ("crop", {"image": "image_1", "box": [0, 80, 700, 280]}, "857 x 327 pixels."),
    ("crop", {"image": "image_7", "box": [0, 0, 9, 9]}, "no image 'image_7': there are image_1 to image_2"),
    (
        "crop",
        {"image": "image_1", "box": [700, 80, 0, 280]},
        "the box 700,80,0,280 is empty: give left, top, right and bottom, in this order",
    ),
    ("crop", {"image": "image_1", "box": [0, 0, 1001, 10]}, "box.2: Input should be less than or equal to 1000"),
    ("zoom", {"image": "image_1", "x": 500, "y": 200, "factor": 4}, "image_3: image_1 at 375,75,625,325, 4 times as large"),
    ("zoom", {"image": "image_1", "factor": 50}, "factor: Input should be less than or equal to 10"),
    ("rotate", {"image": "image_2", "degrees": 90}, "Turned."),
    ("rotate", {"image": "image_2", "degrees": 1000}, "degrees: Input should be less than or equal to 360"),
    (
        "perspective_correct",
        {"image": "image_1", "corners": [[80, 80], [700, 100], [680, 300], [60, 280]]},
        "image_5: part of image_1 from the front",
    ),
    (
        "perspective_correct",
        {"image": "image_1", "corners": [[0, 0]] * 4},
        "the corners are not those of a convex quadrilateral: give upper left, ",
    ),
    ("sharpen", {"image": "image_2"}, "Sharpened."),
    ("sharpen", {"image": "image_2", "strength": 9}, "strength: Input should be less than or equal to 3"),
    ("super_resolution", {"image": "image_2", "factor": 2}, "1714 x 654 pixels."),
    (
        "super_resolution",
        {"image": "image_1", "factor": 4},
        "the image would have 4,896 x 6,528 pixels, and 4,000,000 are allowed",
    ),
    ("select_images", {"images": ["image_2"]}, "Kept: image_2, and the images of the question."),
    ("select_images", {"images": ["image_20"]}, "no image 'image_20': there are image_1 to image_7"),
    ("visit", {"url": "http://169.254.169.254/"}, "169.254.169.254 is no address of the public internet"),
)


class Manual(Pages):
    """Two pages, of which the first has a picture of 1224 x 1632 pixels."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.index_dir = folder / "search_index"
        key = ImageStore(folder / DIR_NAME).write(Image.new("RGB", (1224, 1632), "white"))
        first = Page("wing.pdf", 1, 2, "Rotor limits\nSpeed 340 rpm\nTorque 92 Nm", image=key)
        self._pages = [first, Page("wing.pdf", 2, 2, "Fuel capacity is 73 litres.")]


async def test_what_is_documented_is_what_the_tools_say(tmp_path: Path) -> None:
    toolset = load_toolset(("search", *dict.fromkeys(name for name, _, _ in CALLS)))
    images = RolloutImages(ImageStores((tmp_path / "images", tmp_path / DIR_NAME)), 8)
    workspace = Workspace(Manual(tmp_path), images)
    for name, arguments, told in CALLS:
        outcome = await toolset.callers[name].call(json.dumps(arguments), workspace, CallLimits(60, 8000))
        shown = "".join(f"\n{images.show(image)}: {image.caption}" for image in outcome.images)
        assert told in outcome.text + shown, (name, arguments)
        assert told in DOCUMENTED, told
