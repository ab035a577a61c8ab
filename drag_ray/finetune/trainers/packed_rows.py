"""Batches without padding: rows lie one after the other in a single sequence, and attention keeps them apart."""

from typing import Any

import torch
from torch.nn.attention.varlen import varlen_attn
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from drag_ray.finetune.trainers.shared_prefixes import sees_whole_context
from drag_ray.finetune.trainers.trained_tokens import find_base

_NAME = "sdpa_by_row"
"""of the attention in the configuration of a model"""
_SEEING = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""Models that see images and take rows of text in a pack: their layers of text are told where rows begin, and the positions."""
_HALF = (torch.bfloat16, torch.float16)
_LARGEST_HEAD = 256
"""of PyTorch's flash attention"""


def keep_rows_apart(model: Any) -> bool:
    """Have the attention of a model take the rows of text in a pack one by one; False if the model cannot.

    flash-attn does so by itself, as it is told where rows begin. `model`: without an adapter, or around which one is.
    """
    base = find_base(model)
    text: Any = base.config.get_text_config()
    implementation = text._attn_implementation
    takes_functions = getattr(base, "_supports_attention_backend", False)
    takes_packs = not hasattr(base.config, "vision_config") or base.config.model_type in _SEEING
    if not sees_whole_context(base) or not takes_functions or not takes_packs:
        return False
    if implementation == "sdpa":
        base.set_attn_implementation(_NAME if text is base.config else {"text_config": _NAME})
    return implementation == "sdpa" or implementation.startswith("flash_attention")


def attend_by_row(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    cu_seq_lens_q: torch.Tensor | None = None,
    max_length_q: int = 0,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """PyTorch's causal attention within each row of a pack, or over a batch of padded rows, as transformers calls it.

    No token of another row is computed and hidden then, as it would be with a mask, which grows with the square of the pack.

    Args:
        query, key, value: of shape (1, heads, tokens, size of a head).
        cu_seq_lens_q: where rows begin, and the last ends; None for padded rows.
        max_length_q: tokens of the longest row.
    """
    if cu_seq_lens_q is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **options)
    if _has_flash(query, value) and not options.get("dropout"):
        # PyTorch 2.11 knows no `enable_gqa`, and later ones refuse fewer heads of keys without it.
        num_alike = query.shape[1] // key.shape[1]
        heads = (query, repeat_kv(key, num_alike), repeat_kv(value, num_alike))
        asked, keys, values = (states[0].transpose(0, 1) for states in heads)
        ends = (cu_seq_lens_q, cu_seq_lens_q, max_length_q, max_length_q)
        together: Any = varlen_attn(asked, keys, values, *ends, scale=options.get("scaling"), window_size=(-1, 0))
        return together[None], None
    lengths = cu_seq_lens_q.diff().tolist()
    rows = zip(*(states.split(lengths, dim=2) for states in (query, key, value)), strict=True)
    attended = [sdpa_attention_forward(module, asked, keys, values, None, **options)[0] for asked, keys, values in rows]
    return torch.cat(attended, dim=1), None


def _has_flash(query: torch.Tensor, value: torch.Tensor) -> bool:
    """True where PyTorch has flash attention for rows of different lengths: half precision, on GPUs since Ampere."""
    size = query.shape[-1]
    fits = size == value.shape[-1] and size % 8 == 0 and size <= _LARGEST_HEAD
    return query.is_cuda and query.dtype in _HALF and fits and torch.cuda.get_device_capability(query.device)[0] >= 8


def _mask_padding(*, attention_mask: torch.Tensor | None = None, **options: Any) -> torch.Tensor | None:
    """The mask of padded rows; a pack needs none."""
    return None if attention_mask is None else sdpa_mask(attention_mask=attention_mask, **options)


AttentionInterface.register(_NAME, attend_by_row)
AttentionMaskInterface.register(_NAME, _mask_padding)
