"""The number format of models."""

import logging

import pytest

from drag_ray.engine.models.dtype import choose_dtype, find_fast_dtype

# As `torch.cpu.get_capabilities` has them, the units that matter.
ZEN_4 = {"architecture": "x86_64", "avx2": True, "avx512_f": True, "avx512_bf16": True, "amx_bf16": False}
SAPPHIRE_RAPIDS = ZEN_4 | {"amx_bf16": True}
ICE_LAKE = ZEN_4 | {"avx512_bf16": False}
ZEN_3 = ICE_LAKE | {"avx512_f": False}
GRAVITON_3 = {"architecture": "aarch64", "neon": True, "bf16": True, "sve_bf16": True}
GRAVITON_2 = {"architecture": "aarch64", "neon": True, "bf16": False}


@pytest.mark.parametrize(
    ("capabilities", "dtype"),
    [
        (ZEN_4, "bfloat16"),
        (SAPPHIRE_RAPIDS, "bfloat16"),
        (SAPPHIRE_RAPIDS | {"avx512_bf16": False}, "bfloat16"),
        (ICE_LAKE, "float32"),
        (ZEN_3, "float32"),
        (GRAVITON_3, "bfloat16"),
        (GRAVITON_2, "float32"),
        ({"architecture": "ppc64le"}, "float32"),
    ],
)
def test_bfloat16_is_left_to_cpus_that_multiply_it(capabilities: dict[str, object], dtype: str) -> None:
    assert find_fast_dtype(capabilities) == dtype


@pytest.mark.parametrize(
    ("capabilities", "on_gpu", "named", "dtype", "warning"),
    [
        (ZEN_3, False, "auto", "float32", ""),
        (ZEN_4, False, "auto", "bfloat16", ""),
        (ZEN_3, True, "auto", "bfloat16", ""),
        (ZEN_3, False, "bfloat16", "bfloat16", "engine: computes in bfloat16, which is named and slow on these CPUs"),
        (ZEN_3, False, "float16", "float16", "engine: computes in float16, which is named and slow on these CPUs"),
        (ZEN_3, True, "bfloat16", "bfloat16", ""),
        (ZEN_3, False, "float32", "float32", ""),
        (ZEN_4, False, "float32", "float32", ""),
    ],
)
def test_a_format_that_is_named_is_taken_and_auto_is_the_faster_one(
    capabilities: dict[str, object],
    on_gpu: bool,
    named: str,
    dtype: str,
    warning: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: capabilities)
    with caplog.at_level(logging.WARNING):
        assert choose_dtype(named, "engine", on_gpu=on_gpu) == dtype
    assert bool(warning) == bool(caplog.messages)
    assert all(message.startswith(warning) for message in caplog.messages)
