"""The number format that a model computes in where its options leave that open."""

import logging
from collections.abc import Mapping

_logger = logging.getLogger(__name__)

_BFLOAT16_UNITS = ("avx512_bf16", "amx_bf16", "bf16")
"""Instructions that multiply bfloat16, by PyTorch's names: two of x86, one of Arm. Other CPUs convert each number."""


def choose_dtype(dtype: str, what: str, *, on_gpu: bool = False) -> str:
    """The number format that is named; for `auto` that of GPUs, `bfloat16`, or the faster one of this machine's CPUs.

    Args:
        dtype: `auto`, `bfloat16`, `float16` or `float32`.
        what: computes, for messages.
        on_gpu: whether it does that on a GPU.
    """
    import torch

    fast = "bfloat16" if on_gpu else find_fast_dtype(torch.cpu.get_capabilities())
    if fast == "float32" and dtype == "auto":
        _logger.info(f"{what}: computes in float32, as these CPUs have no instructions for bfloat16")
    elif fast == "float32" and dtype != "float32":
        _logger.warning(f"{what}: computes in {dtype}, which is named and slow on these CPUs; the dtype auto takes float32")
    return fast if dtype == "auto" else dtype


def find_fast_dtype(capabilities: Mapping[str, object]) -> str:
    """`bfloat16` for CPUs that multiply it, otherwise `float32` (`benchmarks/results/cpu_dtype.json`). `capabilities`: as
    `torch.cpu.get_capabilities` has them; what a kind of processor never has may be missing."""
    return "bfloat16" if any(capabilities.get(unit) for unit in _BFLOAT16_UNITS) else "float32"
