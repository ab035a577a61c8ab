"""The images of a rollout: their names, what tools may return, and which of them stay."""

from pathlib import Path

import pytest
from PIL import Image
from tool_cases import Pages

from drag_ray.corpus.image_store import ImageStore, ImageStores
from drag_ray.errors import ToolError
from drag_ray.tools.calls import CallLimits, CallOutcome, ToolCaller
from drag_ray.tools.function import Arguments
from drag_ray.tools.images.rollout_images import MIN_EDGE, RolloutImages
from drag_ray.tools.observation import Observation, ObservedImage
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace


@pytest.fixture
def images(tmp_path: Path) -> RolloutImages:
    """Of a question with one image; tools may return two."""
    asked = ImageStore(tmp_path / "questions").write(Image.new("RGB", (60, 40), "red"))
    return RolloutImages(ImageStores((tmp_path / "run", tmp_path / "questions")), 2, [asked])


async def call(images: RolloutImages, observation: Observation, *, shows_images: bool = True) -> CallOutcome:
    tool = Tool("draw", "Draws.", Arguments, lambda *_: observation, shows_images=shows_images)
    return await ToolCaller(tool).call("{}", Workspace(Pages("text"), images), CallLimits(5, 100))


def draw(width: int = 50, height: int = 40) -> ObservedImage:
    return ObservedImage(Image.new("RGBA", (width, height), "blue"), "a\nblue   square")


async def test_images_are_stored_once_and_named_when_they_are_shown(images: RolloutImages, tmp_path: Path) -> None:
    outcome = await call(images, Observation("Done.", (draw(), draw())))
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
async def test_what_no_model_can_be_shown_is_an_error_of_the_call(
    images: RolloutImages, picture: ObservedImage, problem: str
) -> None:
    outcome = await call(images, Observation("Done.", (picture,)))
    assert problem in outcome.error
    assert outcome.images == ()


async def test_a_small_image_is_enlarged_to_what_an_encoder_takes(images: RolloutImages) -> None:
    outcome = await call(images, Observation("Done.", (draw(2, 7),)))
    assert images.open(images.show(outcome.images[0])).size == (MIN_EDGE, 98)


async def test_tools_return_no_more_images_than_a_rollout_may_have(images: RolloutImages) -> None:
    for image in (await call(images, Observation("Done.", (draw(), draw())))).images:
        images.show(image)
    refused = await call(images, Observation("Done.", (draw(),)))
    assert refused.error == "1 more image cannot be shown: of the 2 that tools may return in a rollout, 2 are there"


async def test_a_tool_that_does_not_announce_images_shows_none(images: RolloutImages) -> None:
    assert (await call(images, Observation("Done.", (draw(),)), shows_images=False)).error == "draw failed (TypeError)"


async def test_of_kept_images_those_of_the_question_are_always_part(images: RolloutImages) -> None:
    for image in (await call(images, Observation("Done.", (draw(), draw(30, 30))))).images:
        images.show(image)
    images.keep_only(["image_3"])
    assert images.dismissed == {1}
    assert (
        await call(images, Observation("", kept_images=("image_9",)))
    ).error == "no image 'image_9': there are image_1 to image_3"


@pytest.mark.parametrize("name", ["image_0", "image_2", "image_-1", "", "image_1 ", "../x", "image_" + "9" * 500])
def test_an_unknown_name_is_no_place(images: RolloutImages, name: str) -> None:
    with pytest.raises(ToolError, match=r"no image .*: there is image_1"):
        images.open(name)
