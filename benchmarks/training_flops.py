"""The arithmetic of training tokens, and what matrix products reach on this machine; utilisation is one by the other."""

import time
from typing import Any

import torch


def count_token_flops(shapes: dict[str, Any], least: int, most: int, trained_share: float, *, lora_r: int = 16) -> float:
    """Floating-point operations of LoRA of a text model by a token: forwards, and backwards to inputs and to the adapter alone.

    Recomputation does not count.

    Args:
        shapes: of `SHAPES_TEXT`.
        least, most: tokens of a row, which are drawn evenly between them.
        trained_share: tokens that go through the head.
        lora_r: rank of the adapter of all linear layers.
    """
    hidden, inner = shapes["hidden_size"], shapes["intermediate_size"]
    heads, keys = shapes["num_attention_heads"], shapes["num_key_value_heads"]
    width = hidden * keys // heads
    layers = [(hidden, hidden), (hidden, width), (hidden, width), (hidden, hidden), *[(hidden, inner)] * 2, (inner, hidden)]
    frozen = sum(one * other for one, other in layers)
    adapter = lora_r * sum(one + other for one, other in layers)
    mean, mean_of_squares = (least + most) / 2, (least**2 + least * most + most**2) / 3
    attention = 2 * hidden * mean_of_squares / mean  # products with half of the keys, and with as many values
    of_layers = shapes["num_hidden_layers"] * (4 * frozen + 6 * adapter + 3 * attention)
    return of_layers + 4 * trained_share * hidden * shapes["vocab_size"]


def measure_products(size: int = 8192, times: int = 30) -> float | None:
    """TFLOP/s of products of square bfloat16 matrices on the GPU; None without one."""
    if not torch.cuda.is_available():
        return None
    one, other = (torch.randn(size, size, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(5):
        torch.mm(one, other)
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(times):
        torch.mm(one, other)
    torch.cuda.synchronize()
    return round(2 * size**3 * times / (time.perf_counter() - start) / 1e12, 1)
