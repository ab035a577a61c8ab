"""Rows that lie one after the other teach what they teach in rows of their own, however many are in a batch."""

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from packed_training import (
    LENGTHS,
    adapt,
    build_model,
    build_trainer,
    checkpoint_in_process,
    list_rows,
    read_adapter,
    read_loss,
    train_in_process,
)
from ports import find_port
from torch.nn.functional import scaled_dot_product_attention
from training_cases import SHAPE
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, LlamaConfig, MistralConfig, Qwen2Config
from trl.trainer.sft_config import SFTConfig
from two_processes import run_in_two

from drag_ray.finetune.config import FinetuneConfig, TrainJob
from drag_ray.finetune.trainers import packed_rows
from drag_ray.finetune.trainers.collator import RowCollator
from drag_ray.finetune.trainers.packed_rows import keep_rows_apart
from drag_ray.finetune.training_process import divide_steps

pytestmark = pytest.mark.seconds


def compute_step(model: Any) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss of a step with all rows, and the adapter after it, from transformers' own loss of each row by itself."""
    rows = list_rows()
    counts = [sum(label != -100 for label in row["labels"][1:]) for row in rows]
    losses = [
        model(input_ids=torch.tensor([row["input_ids"]]), labels=torch.tensor([row["labels"]])).loss * count * row["weight"]
        for row, count in zip(rows, counts, strict=True)
    ]
    loss = torch.stack(losses).sum() / sum(counts)
    loss.backward()
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    return loss.item(), {name: (weight - weight.grad).detach() for name, weight in trained.items() if weight.grad is not None}


def check_step(loss: float, adapter: dict[str, torch.Tensor], build: Callable[[], Any] = build_model) -> None:
    start = adapt(build())
    before = read_adapter(start)
    expected_loss, expected = compute_step(start)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert len(expected) == 12
    assert all((expected[name] - before[name]).abs().max() > 1e-4 for name in expected)
    torch.testing.assert_close({name: adapter[name] for name in expected}, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize(("batch_size", "accumulation"), [(8, 1), (1, 8), (3, 3)])
def test_a_step_is_that_of_rows_by_themselves_however_it_is_cut(
    build_descent: Callable[..., SFTConfig], batch_size: int, accumulation: int, packs: bool
) -> None:
    arguments = build_descent(batch_size, accumulation, max_steps=1, include_num_input_tokens_seen="non_padding")
    trainer = build_trainer(adapt(build_model()), arguments, packs=packs)
    batch = next(iter(trainer.get_train_dataloader()))
    assert ("attention_mask" in batch) is not packs
    assert batch["input_ids"].shape[0] == (1 if packs else batch_size)
    trainer.train()
    check_step(read_loss(trainer), read_adapter(trainer.model))


def build_seeing_model(kind: str) -> Any:
    """Two layers of text and one of images, with random weights."""
    torch.manual_seed(0)
    text: dict[str, Any] = SHAPE | {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2]}}
    vision: dict[str, Any] = {"depth": 1, "num_heads": 2}
    vision |= {"embed_dim": 16, "hidden_size": 16} if kind == "qwen2_vl" else {"hidden_size": 16, "out_hidden_size": 16}
    vision |= {"deepstack_visual_indexes": [0]} if kind == "qwen3_vl" else {}
    config = AutoConfig.for_model(kind, text_config=text, vision_config=vision)
    return AutoModelForImageTextToText.from_config(config, attn_implementation="sdpa")


@pytest.mark.parametrize("kind", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_rows_of_text_are_packed_for_a_model_that_sees(build_descent: Callable[..., SFTConfig], kind: str) -> None:
    build = partial(build_seeing_model, kind)
    trainer = build_trainer(adapt(build()), build_descent(3, 3, max_steps=1), packs=True)
    assert next(iter(trainer.get_train_dataloader()))["input_ids"].shape[0] == 1
    trainer.train()
    check_step(read_loss(trainer), read_adapter(trainer.model), build)
    assert trainer.model.config.vision_config._attn_implementation == "sdpa"


def test_a_step_of_two_processes_is_that_of_rows_by_themselves(tmp_path: Path) -> None:
    run_in_two(train_in_process, find_port(), tmp_path)
    check_step(*torch.load(tmp_path / "after.pt"))


def test_a_process_that_is_left_of_two_takes_their_steps_from_their_checkpoint(
    build_descent: Callable[..., SFTConfig], tmp_path: Path
) -> None:
    run_in_two(checkpoint_in_process, find_port(), tmp_path / "two")
    rows = tmp_path / "rows.jsonl"
    job = TrainJob(FinetuneConfig(batch_size=2), "model", rows, rows, (), use_gpu=False, num_workers=2, num_threads=1)
    accumulation = divide_steps(job, 1).config.gradient_accumulation
    trained = []
    for start in (None, str(tmp_path / "two" / "checkpoint-1")):
        trainer = build_trainer(adapt(build_model()), build_descent(2, accumulation, max_steps=2, learning_rate=0.1), packs=True)
        trainer.train(resume_from_checkpoint=start)
        trained.append(read_adapter(trainer.model))
    torch.testing.assert_close(trained[1], trained[0], rtol=1e-5, atol=1e-5)
    before = read_adapter(adapt(build_model()))
    assert all((trained[0][name] - before[name]).abs().max() > 1e-4 for name in before)


def test_an_evaluation_is_the_same_and_every_token_is_counted(build_descent: Callable[..., SFTConfig]) -> None:
    found = []
    for packs in (True, False):
        arguments = build_descent(3, 3, max_steps=1, include_num_input_tokens_seen="non_padding", per_device_eval_batch_size=3)
        trainer = build_trainer(adapt(build_model()), arguments, packs=packs)
        trainer.processing_class.pad_token_id = list_rows()[0]["input_ids"][0]  # which texts hold too
        found.append(trainer.evaluate()["eval_loss"])
        trainer.train()
        assert trainer.state.num_input_tokens_seen == sum(LENGTHS)
    assert found[0] == pytest.approx(found[1], rel=1e-5)


def attend_segments(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *bounds: Any,
    scale: float,
    window_size: tuple[int, int],
) -> torch.Tensor:
    """`varlen_attn` for CPUs: of shape (tokens, heads, size of a head), as many heads of keys as of queries."""
    ends, _, longest, _ = bounds
    assert longest == ends.diff().max()
    assert query.shape == key.shape == value.shape
    parts = [[states[first:last].transpose(0, 1) for states in (query, key, value)] for first, last in itertools.pairwise(ends)]
    attended = [
        scaled_dot_product_attention(query, key, value, scale=scale, is_causal=window_size == (-1, 0))
        for query, key, value in parts
    ]
    return torch.cat([rows.transpose(0, 1) for rows in attended])


def test_the_kernel_of_gpus_is_given_the_rows_and_their_bounds(
    build_descent: Callable[..., SFTConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_rows, "_has_flash", lambda query, value: True)
    calls = []
    monkeypatch.setattr(packed_rows, "varlen_attn", lambda *of, **how: (calls.append(how), attend_segments(*of, **how))[1])
    trainer = build_trainer(adapt(build_model()), build_descent(3, 3, max_steps=1), packs=True)
    trainer.train()
    check_step(read_loss(trainer), read_adapter(trainer.model))
    assert len(calls) == 2 * 3  # two layers, three batches


def test_padded_rows_are_as_likely_to_a_model_that_packs() -> None:
    batch = RowCollator(pad_token_id=0)(list_rows())
    plain, packing = build_model(), build_model()
    assert keep_rows_apart(packing)
    is_text = batch["attention_mask"].bool()
    torch.testing.assert_close(packing(**batch).logits[is_text], plain(**batch).logits[is_text])


@pytest.mark.parametrize(
    ("config", "attention", "packs"),
    [
        (Qwen2Config(**SHAPE), "sdpa", True),
        (LlamaConfig(**SHAPE), "eager", False),
        (MistralConfig(**SHAPE, sliding_window=8), "sdpa", False),
        (Qwen2Config(**SHAPE, use_sliding_window=True, sliding_window=8, max_window_layers=1), "sdpa", False),
    ],
)
def test_models_that_do_not_see_the_whole_context_are_padded(config: Any, attention: str, packs: bool) -> None:
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    assert keep_rows_apart(model) is packs
    assert (model.config._attn_implementation == attention) is not packs


def test_flash_attn_keeps_its_own_way() -> None:
    model = build_model()
    model.config._attn_implementation_internal = "flash_attention_2"
    assert keep_rows_apart(model)
    assert model.config._attn_implementation == "flash_attention_2"
