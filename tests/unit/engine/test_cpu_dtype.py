"""The number format of models on CPUs."""

import pytest

from drag_ray.engine.cpu_dtype import choose_cpu_dtype


@pytest.mark.parametrize(
    ("capability", "wanted", "chosen"),
    [
        ("AVX2", "bfloat16", "float32"),
        ("AVX2", "auto", "float32"),
        ("AVX2", "float32", "float32"),
        ("AVX512", "bfloat16", "bfloat16"),
        ("AVX512", "auto", "auto"),
        ("DEFAULT", "bfloat16", "bfloat16"),  # other processors than x86
    ],
)
def test_sixteen_bits_are_left_to_cpus_that_multiply_them(
    capability: str, wanted: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: capability)
    assert choose_cpu_dtype(wanted, "engine") == chosen
