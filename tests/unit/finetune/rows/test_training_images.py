"""Rows with page images, against what Qwen3-VL's own processor makes of the same texts and pictures."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from embedded_tokenizer import write_tokenizer
from PIL import Image
from qwen3_vl_shapes import SHAPES_TINY, write_model
from transformers import AutoProcessor

from drag_ray.corpus.image_store import ImageStore
from drag_ray.engine.conversation import read_conversation
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.errors import DataError, TrainError
from drag_ray.finetune.methods.grpo import GRPO
from drag_ray.finetune.methods.method import AdapterMethod
from drag_ray.finetune.methods.sft import SFT
from drag_ray.finetune.rows.images import TrainingImages, open_training_images
from drag_ray.finetune.rows.tokenized_rows import RowTokenizer, TokenizedRows
from drag_ray.finetune.trainers.collator import RowCollator

pytestmark = pytest.mark.seconds

SIZES = ((300, 400), (640, 320), (300, 400))
SEARCH = "<search>rotor</search>"


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    return str(write_model(folder, write_tokenizer(folder), SHAPES_TINY, max_pixels=256 * 256))


@pytest.fixture(scope="module")
def processor(model_dir: str) -> Any:
    return AutoProcessor.from_pretrained(model_dir)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> ImageStore:
    return ImageStore(tmp_path_factory.mktemp("page_images"))


@pytest.fixture(scope="module")
def keys(store: ImageStore) -> list[str]:
    return [store.write(Image.new("RGB", size, (70 * number, 0, 0))) for number, size in enumerate(SIZES)]


@pytest.fixture(scope="module")
def images(model_dir: str, store: ImageStore) -> TrainingImages:
    found = open_training_images(model_dir, [store.root])
    assert found is not None
    return found


def say(role: str, *parts: str | None) -> dict[str, Any]:
    """A message of a written row; None stands for an image."""
    return {"role": role, "content": [{"type": "text" if part else "image", "text": part} for part in parts]}


def build_row(*keys: str) -> dict[str, Any]:
    """A row that shows images after a search."""
    shown = [part for _ in keys for part in ("\n\n[1] wing.pdf#1\n", None)]
    prompt = [
        say("user", "Question: which rotor?"),
        say("assistant", "<search>wing</search>"),
        say("user", "Pages found:", *shown),
    ]
    return {"prompt": prompt, "completion": [say("assistant", SEARCH)], "images": list(keys)}


def tokenize(
    rows: list[dict[str, Any]],
    processor: Any,
    images: TrainingImages | None,
    method: AdapterMethod | None = None,
    limit: int = 2048,
) -> TokenizedRows:
    """Rows as supervised training, or another method, takes them."""
    return (method or SFT()).tokenize(rows, RowTokenizer(processor.tokenizer, limit, images))


def render(row: dict[str, Any], processor: Any) -> str:
    return processor.apply_chat_template(row["prompt"] + row["completion"], tokenize=False)


def decode_learned(row: dict[str, Any], processor: Any) -> str:
    return processor.tokenizer.decode([label for label in row["labels"] if label != IGNORED_LABEL])


def test_an_image_has_the_tokens_of_the_processor_and_they_are_not_learned_whatever_the_mask(
    processor: Any, store: ImageStore, keys: list[str], images: TrainingImages
) -> None:
    row = build_row(*keys)
    [tokenized] = tokenize([row], processor, images).rows
    expected = processor(text=[render(row, processor)], images=[store.open(key) for key in keys])
    assert tokenized["input_ids"] == expected["input_ids"][0]
    assert tokenized["input_ids"].count(processor.image_token_id) > 100
    assert decode_learned(tokenized, processor) == f"{SEARCH}<|im_end|>"
    assert tokenized["image_keys"] == keys
    row = build_row(keys[1])
    [tokenized] = tokenize([row], processor, images, SFT(mask="none")).rows
    assert decode_learned(tokenized, processor) == render(row, processor).replace("<|image_pad|>", "")


def test_of_a_step_with_images_drawn_tokens_alone_are_learned(processor: Any, keys: list[str], images: TrainingImages) -> None:
    row = build_row(*keys)
    [supervised] = tokenize([row], processor, images).rows
    row |= {"completion_token_ids": processor.tokenizer(SEARCH)["input_ids"], "advantage": -0.5}
    [step] = tokenize([row], processor, images, GRPO()).rows
    assert step["input_ids"] == supervised["input_ids"][: len(step["input_ids"])]
    assert decode_learned(step, processor) == SEARCH
    assert step["image_keys"] == keys


def test_a_batch_has_what_the_processor_makes_of_it(
    processor: Any, store: ImageStore, keys: list[str], images: TrainingImages
) -> None:
    rows = [build_row(keys[0], keys[1]), build_row(), build_row(keys[2])]
    tokenized = tokenize(rows, processor, images)
    batch = RowCollator(processor.tokenizer.pad_token_id, images, number="weight")(tokenized.rows)
    expected = processor(
        text=[render(row, processor) for row in rows],
        images=[store.open(key) for key in keys],
        padding=True,
        padding_side="right",
        return_tensors="pt",
    )
    assert set(batch) == {*expected, "labels", "weight", "rows"}
    for name, values in expected.items():
        torch.testing.assert_close(batch[name], values, msg=name)


def test_a_batch_without_images_is_one_of_text(processor: Any, images: TrainingImages) -> None:
    tokenized = tokenize([build_row()], processor, images)
    batch = RowCollator(processor.tokenizer.pad_token_id, images)(tokenized.rows)
    assert set(batch) == {"input_ids", "labels", "attention_mask"}


def test_images_that_are_read_count_in_the_length_of_a_row(processor: Any, keys: list[str], images: TrainingImages) -> None:
    messages = [say("user", "Q"), say("assistant", SEARCH), say("user", "Pages found:", None), say("assistant", "no")]
    row = {"messages": messages, "num_prompt_messages": 1, "train_turns": [True, False], "images": keys[:1]}
    [tokenized] = tokenize([row], processor, images).rows
    assert tokenized["image_keys"] == []
    assert processor.image_token_id not in tokenized["input_ids"]
    [short, long] = tokenize([build_row(), build_row(*keys)], processor, images).rows
    limit = len(long["input_ids"]) - 1
    assert limit > len(short["input_ids"]) + 100
    tokenized = tokenize([build_row(), build_row(*keys)], processor, images, limit=limit)
    assert (len(tokenized.rows), tokenized.num_too_long) == (1, 1)


def test_a_lost_image_is_told_with_its_row(
    processor: Any, store: ImageStore, keys: list[str], model_dir: str, tmp_path: Path
) -> None:
    path = shutil.copytree(store.root, tmp_path / "page_images") / keys[1]
    images, rows = open_training_images(model_dir, [tmp_path / "page_images"]), [build_row(keys[0]), build_row(keys[1])]
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(DataError, match=rf"row 2: .*{keys[1]}: damaged: the hash"):
        tokenize(rows, processor, images)
    path.unlink()
    with pytest.raises(DataError, match=rf"row 2: .*{keys[1]}: no such image"):
        tokenize(rows, processor, images)


def test_a_text_that_spells_the_image_token_shows_no_image(processor: Any, images: TrainingImages) -> None:
    asked = {"prompt": [say("user", "What is <|image_pad|>?")], "images": []}
    [row] = tokenize([asked | {"completion": [say("assistant", SEARCH)]}], processor, images).rows
    assert processor.image_token_id not in row["input_ids"]
    with pytest.raises(DataError, match="row 1: a training row shows 0 images, and the chat template marks 1"):
        tokenize([asked | {"completion": [say("assistant", "<search><|image_pad|></search>")]}], processor, images)


def test_a_model_of_text_or_no_index_is_refused_for_rows_with_images(
    processor: Any, keys: list[str], store: ImageStore, model_dir: str
) -> None:
    assert open_training_images(str(embedded_model_dir()), [store.root]) is None
    with pytest.raises(TrainError, match=r"show page images, and engine\.model takes none"):
        tokenize([build_row(keys[0])], processor, None)
    images = open_training_images(model_dir, [])
    assert tokenize([build_row()], processor, images).rows
    with pytest.raises(TrainError, match=r"show page images, and this run has no index stage.*jobs/index\.py"):
        tokenize([build_row(keys[0])], processor, images)


def test_contents_without_an_image_are_plain_text_again() -> None:
    conversation = read_conversation(build_row("ab/1.jpg"))
    assert [message["content"] for message in conversation.messages[:2]] == ["Question: which rotor?", "<search>wing</search>"]
    assert conversation.messages[2]["content"][2] == {"type": "image", "image": "ab/1.jpg"}
    assert conversation.messages[3]["content"] == SEARCH


def test_an_image_that_would_be_learned_or_fills_other_places_is_refused(
    processor: Any, keys: list[str], images: TrainingImages
) -> None:
    first, second = tokenize([build_row(keys[0]), build_row(keys[1])], processor, images).rows
    collate = RowCollator(processor.tokenizer.pad_token_id, images)
    for swapped in ([first | {"image_keys": keys[1:2]}, second], [first | {"image_keys": []}, second | {"image_keys": keys[:2]}]):
        with pytest.raises(DataError, match=r"a row leaves \d+ places to its images, which fill \d+"):
            collate(swapped)
    [row] = tokenize([build_row(keys[0])], processor, images).rows
    collate = RowCollator(processor.tokenizer.pad_token_id, images)
    shifted = [*row["labels"][1:], row["labels"][0]]
    for labels in (row["input_ids"], shifted):
        with pytest.raises(TrainError, match="would learn a token that is not the reply's at its place, or an image"):
            collate([row | {"labels": labels}])
