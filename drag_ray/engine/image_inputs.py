"""Prompts with page images as vLLM's engine takes them.

vLLM reads, scales and cuts the images of its requests in one thread, request after request, and a GPU waits for that. Here
each page goes through the model's own image processor once, pages side by side in threads, and its pixels are sent to the
engine once: afterwards a prompt names the page, and the engine finds it in its cache.
"""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from drag_ray.engine.generate import ImageSource
from drag_ray.errors import ConfigError


class ProcessedImage(NamedTuple):
    """A page image after the model's image processor.

    Attributes:
        features: vLLM's `MultiModalKwargsItem`, about 15 MB for a page of 960 x 1280 pixels.
        token_ids: what stands in the prompt instead of the one token with which the chat template marks an image.
        place: vLLM's `PlaceholderRange`: which of these tokens the image fills.
    """

    features: Any
    token_ids: list[int]
    place: Any


class ImageInputs:
    """Makes an engine's prompts with images. Belongs to one event loop. Raises ConfigError where the model takes no images."""

    def __init__(self, engine: Any, images: ImageSource, num_threads: int) -> None:
        from vllm.multimodal import MULTIMODAL_REGISTRY

        model_config = engine.model_config
        if not model_config.is_multimodal_model:
            raise ConfigError(
                f"engine.model {model_config.model!r}: takes no images. Set agent.page_view to text, name no tool that "
                "shows images, and leave out questions with images."
            )
        self._engine = engine
        self._is_engine_ready = False
        self._cache = engine.renderer.mm_processor_cache
        self._images = images
        self._executor = ThreadPoolExecutor(num_threads, "images", initializer=_use_one_core)
        # vLLM's tokenizer lends each thread a copy of its own, and with the same tokenizer its loaded processor is found again:
        # loading one takes seconds of Python.
        self._processor: Any = MULTIMODAL_REGISTRY.create_processor(model_config, tokenizer=engine.get_tokenizer())
        self._image_token_id: int = self._processor.info.get_hf_processor().image_token_id
        self._in_work: dict[str, asyncio.Future[ProcessedImage]] = {}
        self._outlines: dict[str, ProcessedImage] = {}  # of every page that was ever processed, without its features

    async def expand(
        self, prompt_token_ids: Sequence[int], keys: Sequence[str], check_length: Callable[[int], None]
    ) -> dict[str, Any]:
        """vLLM's `MultiModalInput` for a prompt in which one token stands for each image.

        What it holds must reach the engine before another prompt is made: the engine's cache of images and the record of it that
        this process keeps see the images in the same order. So `generate` follows without an `await` in between, and
        `check_length` is asked before what it thinks of the prompt's number of tokens. Raises ConfigError where the chat template
        marks images in a way of its own, and DataError where an image is missing or cannot be read.
        """
        from vllm.inputs import mm_input

        if not self._is_engine_ready:
            await self._engine.collective_rpc("keep_encodings_apart")
            self._is_engine_ready = True
        fresh: dict[str, ProcessedImage] = {}
        while missing := [key for key in dict.fromkeys(keys) if key not in fresh and not self._is_in_engine(key)]:
            fresh |= zip(missing, await asyncio.gather(*(self._process_once(key) for key in missing)), strict=True)
        outlines = [fresh.get(key) or self._outlines[key] for key in keys]
        token_ids, places = fill_places(prompt_token_ids, self._image_token_id, outlines)
        check_length(len(token_ids))
        features = self._take_features(keys, fresh)
        return dict(mm_input(token_ids, features, {"image": list(keys)}, {"image": places}))

    def process(self, key: str) -> ProcessedImage:
        """Read an image and put it through the model's image processor; several threads may. Raises DataError where the image is
        missing or cannot be read."""
        from vllm.multimodal.processing import ProcessorInputs, TimingContext

        items = self._processor.info.parse_mm_data({"image": [self._images.open(key)]})
        found = self._processor.apply(
            ProcessorInputs([self._image_token_id], items, {"image": [key]}), TimingContext(enabled=False)
        )
        return ProcessedImage(found["mm_kwargs"]["image"][0], found["prompt_token_ids"], found["mm_placeholders"]["image"][0])

    def close(self) -> None:
        """Stop the threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _is_in_engine(self, key: str) -> bool:
        return key in self._outlines and self._cache.is_cached_item(key)

    def _take_features(self, keys: Sequence[str], fresh: dict[str, ProcessedImage]) -> Any:
        """The features to send: none for an image that the engine has."""
        from vllm.multimodal.inputs import MultiModalKwargsItems

        for key in keys:  # first, so that none of them makes room for another one
            self._cache.touch_sender_cache_item(key)
        given = ((fresh[key].features, ()) if key in fresh else None for key in keys)
        items = [self._cache.get_and_update_item(item, key)[0] for key, item in zip(keys, given, strict=True)]
        return MultiModalKwargsItems({"image": items})

    async def _process_once(self, key: str) -> ProcessedImage:
        """Process an image, or wait until it is processed for another prompt."""
        if key not in self._in_work:
            self._in_work[key] = asyncio.get_running_loop().run_in_executor(self._executor, self.process, key)
        try:
            processed = await self._in_work[key]
        finally:
            self._in_work.pop(key, None)
        self._outlines[key] = processed._replace(features=None)
        return processed


class ServedImageInputs:
    """Makes prompts with images for an engine that other programs' requests reach too.

    vLLM processes the images itself, in turn with those of the other requests: its record of what the engine has cached keeps the
    order of all of them.
    """

    def __init__(self, open_image: Callable[[str], Any]) -> None:
        self._open = open_image

    async def expand(
        self, prompt_token_ids: Sequence[int], keys: Sequence[str], check_length: Callable[[int], None]
    ) -> dict[str, Any]:
        """vLLM's prompt with the images of these keys, whose own tokens only vLLM counts. Raises DataError where an image is
        missing or cannot be read."""
        check_length(len(prompt_token_ids))
        images = await asyncio.to_thread(lambda: [self._open(key) for key in keys])
        return {"prompt_token_ids": list(prompt_token_ids), "multi_modal_data": {"image": images}}

    def close(self) -> None:
        """No-op: nothing to close."""


def fill_places(token_ids: Sequence[int], image_token_id: int, images: Sequence[ProcessedImage]) -> tuple[list[int], list[Any]]:
    """The prompt with the tokens of each image in place of its mark, and the places of the images in it."""
    if token_ids.count(image_token_id) != len(images):
        raise ConfigError(
            f"the chat template of the model marks {token_ids.count(image_token_id)} of {len(images)} images with the "
            f"processor's image token, {image_token_id}. This family of models is not supported; set agent.page_view to text."
        )
    filled: list[int] = []
    places = []
    waiting = iter(images)
    for token_id in token_ids:
        if token_id != image_token_id:
            filled.append(token_id)
            continue
        image = next(waiting)
        places.append(dataclasses.replace(image.place, offset=image.place.offset + len(filled)))
        filled += image.token_ids
    return filled, places


def _use_one_core() -> None:
    """Limit PyTorch to one thread: images run in parallel."""
    import torch

    torch.set_num_threads(1)
