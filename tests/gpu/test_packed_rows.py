"""A pack on a GPU, where PyTorch's flash attention takes the rows: as learned as padded rows are, in the same number format."""

from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from drag_ray.finetune.trainers import packed_rows
from drag_ray.finetune.trainers.collator import RowCollator
from drag_ray.finetune.trainers.packed_rows import keep_rows_apart
from drag_ray.finetune.trainers.trained_tokens import compute_trained_loss

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]

LENGTHS = (300, 700, 17, 1024, 450)


def list_rows() -> list[dict[str, Any]]:
    rows = []
    for length in LENGTHS:
        tokens = torch.randint(0, 500, (length,)).tolist()
        labels = [-100] * (length // 2) + tokens[length // 2 :]
        rows.append({"input_ids": tokens, "labels": labels, "image_keys": [], "weight": 0.5 + length / 1000})
    return rows


def compute_gradients(model: Any, rows: list[dict[str, Any]], *, packs: bool) -> tuple[float, torch.Tensor]:
    """The loss of a batch, and the gradients of all weights in a row."""
    batch: dict[str, Any] = RowCollator(pad_token_id=0, number="weight", packs=packs)(rows)
    inputs = {name: value.cuda() if isinstance(value, torch.Tensor) else value for name, value in batch.items()}
    model.zero_grad()
    loss = compute_trained_loss(model, inputs)
    loss.backward()
    return loss.item(), torch.cat([weight.grad.flatten().double() for weight in model.parameters()])


@pytest.mark.parametrize("head_size", [64, 128])
def test_a_pack_teaches_what_padded_rows_do(head_size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    calls = []
    kernel = packed_rows.varlen_attn
    monkeypatch.setattr(packed_rows, "varlen_attn", lambda *of, **how: (calls.append(of), kernel(*of, **how))[1])
    shape: dict[str, Any] = {"hidden_size": 4 * head_size, "intermediate_size": 256, "num_hidden_layers": 2}
    config = Qwen2Config(vocab_size=500, num_attention_heads=4, num_key_value_heads=2, **shape)
    exact: Any = Qwen2ForCausalLM(config)
    exact.cuda()
    rows = list_rows()
    expected_loss, expected = compute_gradients(exact, rows, packs=False)
    half: Any = exact.to(torch.bfloat16)
    _, padded = compute_gradients(half, rows, packs=False)
    assert not calls
    assert keep_rows_apart(half)
    loss, packed = compute_gradients(half, rows, packs=True)
    assert len(calls) == 2  # a layer each
    assert loss == pytest.approx(expected_loss, rel=0.01)
    # As far from exact ones as rounding takes those of padded rows.
    assert (packed - expected).norm() < 1.2 * (padded - expected).norm() + 0.01 * expected.norm()
