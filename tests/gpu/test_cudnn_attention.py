"""Gradients of attention on a GPU, where cuDNN's backward pass gives NaN on Hopper (https://github.com/pytorch/pytorch/issues/196678).

It does with a mask, at a length of 64 more than a multiple of 128, where no key of a query scores above -88.7.
"""

import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.errors import NotFiniteError
from drag_ray.finetune import trainer
from drag_ray.finetune.config import FinetuneConfig, TrainJob
from drag_ray.finetune.methods.sft import SFT
from drag_ray.finetune.rows.tokenized_rows import RowTokenizer
from drag_ray.finetune.rows.training_rows import tokenize_training_rows
from drag_ray.finetune.trainers.adapter_trainer import is_cudnn_sound, leave_out_broken_kernels

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]

LOW_SCORE = -120.0
HEAD_SIZE = 64


@pytest.fixture(autouse=True)
def default_kernels() -> Iterator[None]:
    torch.backends.cuda.enable_cudnn_sdp(True)
    yield
    torch.backends.cuda.enable_cudnn_sdp(True)


def skip_unless_broken() -> None:
    major, _ = torch.cuda.get_device_capability()
    if major != 9 or is_cudnn_sound():
        pytest.skip(f"cuDNN {torch.backends.cudnn.version()} on {torch.cuda.get_device_name()} is not known to be broken")


def compute_gradients(length: int, head_size: int, dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
    """Of query, key and value, which are the same numbers in each type, with all scores at about `LOW_SCORE`."""
    torch.manual_seed(0)
    query, key, value, weight = (torch.randn(1, 2, length, head_size, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    query, key = query * 0.1, key * 0.1
    query[..., 0], key[..., 0] = 1.0, LOW_SCORE * math.sqrt(head_size)
    inputs = [tensor.to(dtype).requires_grad_() for tensor in (query, key, value)]
    mask = torch.ones(length, length, dtype=torch.bool, device="cuda").tril()[None, None]
    out = scaled_dot_product_attention(*inputs, attn_mask=mask)
    return list(torch.autograd.grad(out, inputs, weight.to(dtype)))


@pytest.mark.parametrize("head_size", [64, 128])
@pytest.mark.parametrize("length", [192, 704])
def test_cudnn_attention_is_broken_where_it_is_left_out(length: int, head_size: int) -> None:
    skip_unless_broken()
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        gradients = compute_gradients(length, head_size)
    assert not gradients[0].isfinite().all()


@pytest.mark.parametrize("head_size", [64, 128])
@pytest.mark.parametrize("length", [192, 704, 705])
def test_gradients_are_those_of_plain_attention_in_training(length: int, head_size: int) -> None:
    leave_out_broken_kernels()
    found = compute_gradients(length, head_size)
    with sdpa_kernel(SDPBackend.MATH):
        expected = compute_gradients(length, head_size, torch.float64)
    for gradient, other in zip(found, expected, strict=True):
        assert gradient.isfinite().all()
        # In the first channel the gradients of a query are the rounding of large numbers that cancel each other.
        difference = gradient[..., 1:].double() - other[..., 1:]
        assert difference.norm() < 0.02 * other[..., 1:].norm()


def write_low_scoring_model(folder: Path) -> Path:
    """A model whose every query scores every key at `LOW_SCORE`: biases that the rotation by position hardly touches."""
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=2 * HEAD_SIZE,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=49152,
        attention_bias=True,
    )
    model = LlamaForCausalLM(config)
    slowest = HEAD_SIZE // 2 - 1  # of the rotations: a ten-thousandth of a turn a token
    size = math.sqrt(-LOW_SCORE * math.sqrt(HEAD_SIZE))
    for layer in model.model.layers:
        attention: Any = layer.self_attn
        for projection, bias in ((attention.q_proj, size), (attention.k_proj, -size)):
            projection.bias.data.zero_()
            projection.bias.data[slowest::HEAD_SIZE] = bias
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(embedded_model_dir()).save_pretrained(folder)
    return folder


def write_rows(path: Path, model_dir: Path) -> None:
    """Pairs of rows of 192 tokens and of fewer, so that batches of two are padded and so have a mask."""
    row_tokenizer = RowTokenizer(AutoTokenizer.from_pretrained(model_dir), 2048)

    def build_row(num_words: int) -> dict[str, object]:
        prompt = [{"role": "user", "content": "Where" + " is" * num_words}]
        return {"prompt": prompt, "completion": [{"role": "assistant", "content": "<search>pump</search>"}]}

    [shortest] = SFT().tokenize([build_row(0)], row_tokenizer).rows
    num_missing = 192 - len(shortest["input_ids"])
    rows = [build_row(num_missing - number) for number in range(8)]
    assert [len(row["input_ids"]) for row in SFT().tokenize(rows, row_tokenizer).rows] == list(range(192, 184, -1))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def train(folder: Path) -> list[float]:
    """The gradient norms of a training of four steps of eight rows, in one batch each."""
    model_dir = write_low_scoring_model(folder / "model")
    write_rows(folder / "train.jsonl", model_dir)
    (folder / "validation.jsonl").write_text("")
    config = FinetuneConfig(epochs=4, batch_size=8, checkpoint_steps=100, warmup_ratio=0)
    job = TrainJob(
        config,
        str(model_dir),
        train_path=folder / "train.jsonl",
        validation_path=folder / "validation.jsonl",
        image_dirs=(),
        use_gpu=True,
        num_workers=1,
        num_threads=1,
    )
    outcome = trainer.train(
        job,
        tokenize_training_rows(job),
        lambda metrics, checkpoint_dir: shutil.copytree(checkpoint_dir, folder / "checkpoint"),
        None,
    )
    return [point["grad_norm"] for point in outcome["curve"] if "loss" in point]


def test_a_training_of_low_scores_is_sound(tmp_path: Path) -> None:
    norms = train(tmp_path)
    assert len(norms) == 4
    assert all(0 < norm < math.inf for norm in norms)


def test_a_training_with_broken_attention_stops_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_unless_broken()
    monkeypatch.setattr(trainer, "leave_out_broken_kernels", lambda: None)
    with pytest.raises(NotFiniteError, match=r"finetune step 1: loss \d.*gradient norm nan.*cuDNN's attention.*196678"):
        train(tmp_path)
    assert not (tmp_path / "checkpoint").exists()
