"""A Qwen3-VL of two layers with random weights, and its vLLM engine in a process that tests share."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from adapters import make_adapter
from embedded_tokenizer import write_tokenizer
from engine_process import open_process
from qwen3_vl_shapes import SHAPES_TINY, write_model
from transformers import AutoConfig, Qwen3VLForConditionalGeneration

from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import ImageSource
from drag_ray.engine.vllm import VllmEngine

_IMAGES_PER_PROMPT = 16


def configure(model: str) -> EngineConfig:
    """The options of an engine."""
    return EngineConfig(model=model, dtype="float32", max_model_len=4096, enforce_eager=True)


class SharedEngine(VllmEngine):
    """The engine within its process; where the images of prompts come from is set by who calls it."""

    open_image: Callable[[str], Any]

    def __init__(self, model: str, adapters: Sequence[str]) -> None:
        super().__init__(configure(model), ImageSource(lambda key: self.open_image(key), _IMAGES_PER_PROMPT), adapters)


@dataclass(frozen=True)
class VisionEngine:
    """The engine as tests have it, with the folders of its model and of adapters that it has."""

    model: str
    adapters: Sequence[str]
    _connection: Connection

    def call(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """The result of a function that is given a `SharedEngine` and the arguments; both lie in modules that can be imported."""
        self._connection.send((function, arguments))
        return self._connection.recv()


def write_vision_model(folder: Path, hidden_size: int = SHAPES_TINY["text_config"]["hidden_size"]) -> Path:
    """Write the model into a folder."""
    text, vision = SHAPES_TINY["text_config"], SHAPES_TINY["vision_config"]
    shapes = {
        "text_config": text | {"hidden_size": hidden_size},
        "vision_config": vision | {"out_hidden_size": hidden_size},
    }
    model_dir = write_model(folder, write_tokenizer(folder), shapes, max_pixels=256 * 256)
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(model_dir)
    config.text_config.initializer_range = config.vision_config.initializer_range = 0.2  # so that images make a difference
    Qwen3VLForConditionalGeneration(config).float().save_pretrained(model_dir)
    return model_dir


@contextmanager
def start_vision_engine(folder: Path) -> Generator[VisionEngine]:
    """Write the model and three adapters of it into a folder and start its engine, until the block ends."""
    model = str(write_vision_model(folder / "model"))
    adapters = [make_adapter(folder / name, seed, model) for seed, name in enumerate(("first", "second", "third"))]
    with open_process(_serve, model, adapters) as connection:
        yield VisionEngine(model, adapters, connection)


def _serve(model: str, adapters: Sequence[str], connection: Connection) -> None:
    async def answer() -> None:
        engine = SharedEngine(model, adapters)
        while True:
            function, arguments = await asyncio.to_thread(connection.recv)
            connection.send(await function(engine, *arguments))

    asyncio.run(answer())
