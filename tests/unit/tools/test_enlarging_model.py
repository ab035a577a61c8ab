"""super_resolution with a model of the user's: what it makes, and models that are none."""

from pathlib import Path

import numpy as np
import pytest
from onnx_models import write_onnx
from PIL import Image
from tool_cases import Pages

from drag_ray.agent.config import AgentConfig
from drag_ray.config import load
from drag_ray.corpus.image_store import ImageStores
from drag_ray.errors import ConfigError, ToolError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.recipes.opensearch_vl.super_resolution import EnlargingModel
from drag_ray.tools.calls import CallLimits
from drag_ray.tools.config import SuperResolutionConfig, ToolOptions
from drag_ray.tools.images.rollout_images import RolloutImages
from drag_ray.tools.registry import load_toolset
from drag_ray.tools.workspace import Workspace

pytest.importorskip("onnxruntime")


def draw_noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def test_an_image_of_several_pieces_is_enlarged_as_if_it_were_one(tmp_path: Path) -> None:
    image = draw_noise(401, 230)
    nearest = EnlargingModel(write_onnx(tmp_path / "nearest.onnx", "Resize", scale=3, mode="nearest"))
    assert (np.asarray(nearest.enlarge(image)) == np.asarray(image).repeat(3, 0).repeat(3, 1)).all()
    linear = EnlargingModel(write_onnx(tmp_path / "linear.onnx", "Resize"))
    whole = linear._run(np.asarray(image))
    assert np.abs(np.asarray(linear.enlarge(image), int) - whole).max() <= 1  # sums of floats in another order
    assert (nearest.scale, linear.scale) == (3, 2)


@pytest.mark.parametrize("factor", [2, 3, 4])
async def test_the_model_of_the_options_makes_the_image_that_the_policy_is_shown(tmp_path: Path, factor: int) -> None:
    path = write_onnx(tmp_path / "dark.onnx", "Neg", "Relu", "Resize")  # which makes any image black
    images = RolloutImages(ImageStores([tmp_path / "images"]), 3)
    stores = images._stores
    assert stores
    images.add(stores.write(draw_noise(64, 48)))
    toolset = load_toolset(("super_resolution",), options=ToolOptions(super_resolution=SuperResolutionConfig(model=path)))
    outcome = await toolset.callers["super_resolution"].call(
        f'{{"image": "image_1", "factor": {factor}}}', Workspace(Pages(), images), CallLimits(60, 1000)
    )
    assert outcome.error == ""
    shown = images.open_key(outcome.images[0].key)
    assert shown.size == (64 * factor, 48 * factor)
    assert np.asarray(shown).max() < 4


@pytest.mark.parametrize(
    ("operators", "scale", "shape", "problem"),
    [
        (("Identity",), 2, (1, 3, "h", "w"), "makes 32 x 24 pixels of 32 x 24; expected 2 to 4 times"),
        (("Resize",), 9, (1, 3, "h", "w"), "makes 288 x 216 pixels"),
        (("Resize",), 2, (1, 1, "h", "w"), "not a model that enlarges"),
        (("Resize",), 2, (1, 3, 64, 64), "not a model that enlarges"),
        (("Resize", "Log"), 2, (1, 3, "h", "w"), "it returns no picture"),
        (("Flatten",), 2, (1, 3, "h", "w"), "it returns no picture"),
        (("NoSuchOperator",), 2, (1, 3, "h", "w"), "not a model that enlarges"),
    ],
)
def test_a_model_that_does_something_else_is_refused_with_what_it_does(
    tmp_path: Path, operators: tuple[str, ...], scale: int, shape: tuple[int | str, ...], problem: str
) -> None:
    path = write_onnx(tmp_path / "other.onnx", *operators, scale=scale, shape=shape)
    with pytest.raises(ConfigError, match=problem):
        EnlargingModel(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\x08\x08" + b"\xff" * 1000])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "broken.onnx").write_bytes(content)
    with pytest.raises(ConfigError, match="not a model that enlarges"):
        EnlargingModel(str(tmp_path / "broken.onnx"))


def test_a_model_that_fails_on_an_image_is_an_error_of_the_call_and_another_model_is_another_agent(tmp_path: Path) -> None:
    model = EnlargingModel(write_onnx(tmp_path / "fails.onnx", "Neg", "Sqrt", "Resize"))  # of black alone it makes something
    with pytest.raises(ToolError, match="cannot enlarge this image"):
        model.enlarge(draw_noise(40, 40))
    path = write_onnx(tmp_path / "model.onnx", "Resize")
    model_option = SuperResolutionConfig(model=path)
    named = {"protocol": "tools", "max_iterations": 2, "tools": ("search", "super_resolution")}
    config = AgentConfig(super_resolution=model_option, **named)  # pyright: ignore[reportArgumentType]
    assert config.list_tool_sources() == [Path(path)]
    assert AgentConfig(super_resolution=model_option).list_tool_sources() == []
    options = ("--agent.super-resolution.model", str(tmp_path / "nowhere.onnx"), "--agent.protocol", "tools")
    options += ("--agent.max-iterations", "2", "--agent.tools", "search", "super_resolution")
    with pytest.raises(ConfigError, match=r"nowhere\.onnx': no such file"):
        load(RunConfig, [*options]).agent.list_tool_sources()
