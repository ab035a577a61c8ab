"""Images of a rollout: their names and limits, and what tools show of a picture of four colours, and what they refuse."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from tool_cases import Pages

from drag_ray.agent.config import AgentConfig
from drag_ray.corpus.image_store import DIR_NAME, ImageStore, ImageStores
from drag_ray.errors import ToolError
from drag_ray.tools.calls import CallLimits, CallOutcome, ToolCaller
from drag_ray.tools.function import Arguments
from drag_ray.tools.images.rollout_images import MAX_PIXELS, MIN_EDGE, RolloutImages
from drag_ray.tools.observation import Observation, ObservedImage
from drag_ray.tools.registry import load_toolset
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace

IMAGE_TOOLS = (*("view_page", "crop", "zoom", "rotate", "perspective_correct", "sharpen", "super_resolution", "select_images"),)
COLOURS = {"red": (255, 0, 0), "green": (0, 128, 0), "blue": (0, 0, 255), "black": (0, 0, 0), "white": (255, 255, 255)}


def draw_quarters() -> Image.Image:
    """Red and green above, blue and black below: 400 x 200."""
    image = Image.new("RGB", (400, 200))
    drawing = ImageDraw.Draw(image)
    for number, colour in enumerate(("red", "green", "blue", "black")):
        left, top = 200 * (number % 2), 100 * (number // 2)
        drawing.rectangle((left, top, left + 199, top + 99), fill=colour)
    return image


def name_colour(image: Image.Image, x: float, y: float) -> str:
    """The nearest colour at a place in shares of the image."""
    found = np.array(image.convert("RGB").getpixel((int(x * image.width), int(y * image.height))))
    return min(COLOURS, key=lambda name: float(np.abs(found - COLOURS[name]).sum()))


def list_corners(image: Image.Image) -> list[str]:
    return [name_colour(image, x, y) for y in (0.2, 0.8) for x in (0.2, 0.8)]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A question about the quarters, and a page with the same picture."""
    key = ImageStore(tmp_path / DIR_NAME).write(draw_quarters())
    images = RolloutImages(ImageStores((tmp_path / "run", tmp_path / DIR_NAME)), 3, [key])
    return Workspace(Pages("text", "text", index_dir=tmp_path / "search_index", images=[key]), images)


async def call(workspace: Workspace, tool: str, **arguments: object) -> CallOutcome:
    caller = load_toolset((tool,)).callers[tool]
    return await caller.call(json.dumps(arguments), workspace, CallLimits(10, 1000))


async def look(workspace: Workspace, tool: str, **arguments: object) -> tuple[Image.Image, str]:
    """The image that a call shows, and its caption."""
    outcome = await call(workspace, tool, **arguments)
    assert outcome.error == ""
    [image] = outcome.images
    return workspace.images.open_key(image.key), image.caption


async def test_a_crop_is_the_part_within_the_box_and_zoom_enlarges_the_surroundings_of_a_place(workspace: Workspace) -> None:
    part, caption = await look(workspace, "crop", image="image_1", box=[500, 0, 1000, 500])
    assert (part.size, list_corners(part)) == ((200, 100), ["green"] * 4)
    assert caption == "crop of image_1 at 500,0,1000,500"
    part, _ = await look(workspace, "crop", image="image_1", box=[999.9, 999.9, 1000, 1000])
    assert part.size == (28, 28)
    part, caption = await look(workspace, "zoom", image="image_1", x=0, y=1000, factor=2)
    assert (part.size, list_corners(part)) == ((400, 200), ["blue"] * 4)
    assert caption == "image_1 at 0,500,500,1000, 2 times as large"
    part, _ = await look(workspace, "zoom", image="image_1", factor=4)
    assert list_corners(part) == ["red", "green", "blue", "black"]


async def test_an_image_is_turned_clockwise_and_whole(workspace: Workspace) -> None:
    turned, _ = await look(workspace, "rotate", image="image_1", degrees=90)
    assert (turned.size, list_corners(turned)) == ((200, 400), ["blue", "red", "black", "green"])
    tilted, _ = await look(workspace, "rotate", image="image_1", degrees=-45)
    assert name_colour(tilted, 0.01, 0.01) == "white"


async def test_what_lies_between_four_corners_becomes_a_rectangle(workspace: Workspace) -> None:
    """The quarters, drawn as a trapezium, come back as they were."""
    size, corners = (1000, 1000), [(300, 200), (700, 200), (900, 800), (100, 800)]
    turned = draw_quarters().resize((400, 400))
    rows, values = [], []
    for (u, v), (x, y) in zip([(0, 0), (400, 0), (400, 400), (0, 400)], corners, strict=True):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        values += [u, v]
    seen = turned.transform(size, Image.Transform.PERSPECTIVE, np.linalg.solve(rows, values).tolist(), fillcolor="white")
    stores = workspace.images._stores
    assert stores
    name = workspace.images.add(stores.write(seen))
    straight, _ = await look(workspace, "perspective_correct", image=name, corners=[list(corner) for corner in corners])
    assert list_corners(straight) == ["red", "green", "blue", "black"]
    assert [name_colour(straight, x, y) for x, y in ((0.01, 0.02), (0.98, 0.02), (0.98, 0.98), (0.01, 0.98))] == [
        *("red", "green", "black", "blue"),
    ]


async def test_a_sharpened_edge_is_steeper(workspace: Workspace) -> None:
    stores = workspace.images._stores
    assert stores
    blurred = Image.new("L", (60, 60))
    blurred.putdata([min(200, 50 + 8 * max(0, place % 60 - 20)) for place in range(3600)])
    name = workspace.images.add(stores.write(blurred))
    sharp, _ = await look(workspace, "sharpen", image=name, strength=2)
    spread = [int(np.ptp(np.asarray(image.convert("L"), dtype=int))) for image in (workspace.images.open(name), sharp)]
    assert spread[1] > spread[0] + 10


async def test_super_resolution_adds_pixels_as_far_as_they_are_allowed(workspace: Workspace) -> None:
    larger, _ = await look(workspace, "super_resolution", image="image_1", factor=4)
    assert (larger.size, list_corners(larger)) == ((1600, 800), ["red", "green", "blue", "black"])
    stores = workspace.images._stores
    assert stores
    name = workspace.images.add(stores.write(Image.new("RGB", (1500, 1000))))
    refused = await call(workspace, "super_resolution", image=name)
    assert refused.error == f"the image would have 3,000 x 2,000 pixels, and {MAX_PIXELS:,} are allowed"


async def test_the_picture_of_a_page_is_shown_as_it_is_kept_and_images_are_chosen_by_their_names(workspace: Workspace) -> None:
    shown, caption = await look(workspace, "view_page", file="manual.pdf", page=1)
    assert (list_corners(shown), caption) == (["red", "green", "blue", "black"], "manual.pdf#1")
    assert (await call(workspace, "view_page", file="manual.pdf", page=2)).error == "manual.pdf#2 has no picture"
    assert "no page 3" in (await call(workspace, "view_page", file="manual.pdf", page=3)).error
    workspace.images.add("aa/" + "a" * 32 + ".jpg")
    outcome = await call(workspace, "select_images", images=["image_2", "image_2"])
    assert (outcome.error, outcome.kept_images) == ("", ("image_2",))
    assert "no image 'image_3'" in (await call(workspace, "select_images", images=["image_3"])).error


HOSTILE = [
    ("crop", {"box": [-1, 0, 10, 10]}, "box.0: Input should be greater than or equal to 0"),
    ("crop", {"box": [10, 0, 10, 10]}, "the box 10,0,10,10 is empty"),
    ("crop", {"box": [float("nan")] * 4}, "box.0: Input should be"),
    ("crop", {"box": [0, 0, 1000, 1]}, "one edge is more than 100 times the other"),
    ("zoom", {"factor": 0}, "factor: Input should be greater than or equal to 1.1"),
    ("zoom", {"x": float("inf")}, "x: Input should be"),
    ("rotate", {"degrees": float("nan")}, "degrees: Input should be"),
    ("perspective_correct", {"corners": [[0, 0], [500, 500], [1000, 1000], [700, 700]]}, "not those of a convex quadrilateral"),
    ("perspective_correct", {"corners": [[0, 0], [1000, 1000], [1000, 0], [0, 1000]]}, "not those of a convex quadrilateral"),
    ("perspective_correct", {"corners": [[0, 0], [0, 1000], [1000, 1000], [1000, 0]]}, "not those of a convex quadrilateral"),
    ("perspective_correct", {"corners": [[0, 0], [1e9, 0], [1, 1], [0, 1]]}, "corners.1.0: Input should be less than"),
    ("sharpen", {"strength": -1}, "strength: Input should be greater than 0"),
    ("super_resolution", {"factor": 10**9}, "factor: Input should be less than or equal to 4"),
    ("select_images", {"images": []}, "images: List should have at least 1 item"),
]


@pytest.mark.parametrize(("tool", "arguments", "problem"), HOSTILE)
async def test_hostile_arguments_are_errors_that_say_what_is_wrong(
    workspace: Workspace, tool: str, arguments: dict[str, object], problem: str
) -> None:
    named = {} if tool == "select_images" else {"image": "image_1"}
    outcome = await call(workspace, tool, **named, **arguments)
    assert problem in outcome.error
    assert outcome.images == ()


VALID = {
    "crop": {"box": [0, 0, 10, 10]},
    "zoom": {},
    "rotate": {"degrees": 1},
    "perspective_correct": {"corners": [[0, 0], [900, 0], [900, 900], [0, 900]]},
    "sharpen": {},
    "super_resolution": {},
}


@pytest.mark.parametrize("tool", VALID)
@pytest.mark.parametrize("name", ["image_2", "../../etc/passwd", "", "image_1\0"])
async def test_an_unknown_image_is_named(workspace: Workspace, tool: str, name: str) -> None:
    assert (await call(workspace, tool, image=name, **VALID[tool])).error.endswith(": there is image_1")


def test_image_tools_need_a_model_that_sees_and_have_schemas() -> None:
    toolset = AgentConfig(protocol="tools", max_iterations=4, tools=("search", *IMAGE_TOOLS)).load_tools()
    assert toolset.shows_images
    assert not AgentConfig().load_tools().shows_images
    for function in toolset.functions[1:]:
        parameters = function.describe()["function"]["parameters"]
        assert all("description" in field for field in parameters["properties"].values())


@pytest.fixture
def images(tmp_path: Path) -> RolloutImages:
    """Of a question with one image; tools may return two."""
    asked = ImageStore(tmp_path / "questions").write(Image.new("RGB", (60, 40), "red"))
    return RolloutImages(ImageStores((tmp_path / "run", tmp_path / "questions")), 2, [asked])


async def draw_image(images: RolloutImages, observation: Observation, *, shows_images: bool = True) -> CallOutcome:
    tool = Tool("draw", "Draws.", Arguments, lambda *_: observation, shows_images=shows_images)
    return await ToolCaller(tool).call("{}", Workspace(Pages("text"), images), CallLimits(5, 100))


def draw(width: int = 50, height: int = 40) -> ObservedImage:
    return ObservedImage(Image.new("RGBA", (width, height), "blue"), "a\nblue   square")


async def test_images_are_stored_once_and_named_when_they_are_shown(images: RolloutImages, tmp_path: Path) -> None:
    outcome = await draw_image(images, Observation("Done.", (draw(), draw())))
    assert images.names == ["image_1"]
    assert [images.show(image) for image in outcome.images] == ["image_2", "image_3"]
    assert outcome.images[0].caption == "a blue square"
    assert images.open("image_3").size == (50, 40)
    assert len(list((tmp_path / "run").rglob("*.jpg"))) == 1


@pytest.mark.parametrize(
    ("picture", "problem"),
    [
        (draw(20_000, 10_000), "the image would have 20,000 x 10,000 pixels, and 4,000,000 are allowed"),
        (draw(5_000, 20), "one edge is more than 100 times the other"),
        (draw(0, 20), "the image would have no pixels"),
        (ObservedImage("../../etc/passwd", "x"), "the picture cannot be read"),
        (ObservedImage("aa/" + "a" * 32 + ".jpg", "x"), "the picture cannot be read"),
        (ObservedImage(None, "x"), "draw failed (AttributeError)"),
    ],
)
async def test_what_cannot_be_shown_is_an_error_of_the_call(images: RolloutImages, picture: ObservedImage, problem: str) -> None:
    outcome = await draw_image(images, Observation("Done.", (picture,)))
    assert problem in outcome.error
    assert outcome.images == ()


async def test_a_small_image_is_enlarged_and_one_that_a_tool_does_not_announce_is_an_error(images: RolloutImages) -> None:
    outcome = await draw_image(images, Observation("Done.", (draw(2, 7),)))
    assert images.open(images.show(outcome.images[0])).size == (MIN_EDGE, 98)
    assert (await draw_image(images, Observation("Done.", (draw(),)), shows_images=False)).error == "draw failed (TypeError)"


async def test_tools_return_no_more_images_than_a_rollout_may_have(images: RolloutImages) -> None:
    for image in (await draw_image(images, Observation("Done.", (draw(), draw())))).images:
        images.show(image)
    refused = await draw_image(images, Observation("Done.", (draw(),)))
    assert refused.error == "1 more image cannot be shown: of the 2 that tools may return in a rollout, 2 are there"


async def test_of_kept_images_those_of_the_question_are_always_part(images: RolloutImages) -> None:
    for image in (await draw_image(images, Observation("Done.", (draw(), draw(30, 30))))).images:
        images.show(image)
    images.keep_only(["image_3"])
    assert images.dismissed == {1}
    assert (
        await draw_image(images, Observation("", kept_images=("image_9",)))
    ).error == "no image 'image_9': there are image_1 to image_3"


@pytest.mark.parametrize("name", ["image_0", "image_2", "image_-1", "", "image_1 ", "../x", "image_" + "9" * 500])
def test_an_unknown_name_is_no_place(images: RolloutImages, name: str) -> None:
    with pytest.raises(ToolError, match=r"no image .*: there is image_1"):
        images.open(name)
