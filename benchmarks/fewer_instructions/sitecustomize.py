"""Answers no where PyTorch is asked for instructions beyond AVX2, in every process that has this folder in PYTHONPATH.

vLLM asks before it loads its library, drag_ray before it chooses a number format. What computes is told by its own environment
variables (see `bench_cpu_dtype.py`).
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_UNITS = ("avx512", "amx", "bf16")


class _TorchCpu(PathFinder):
    """Finds `torch.cpu` where it is, and replaces what it says about the processor once it is loaded."""

    @classmethod
    def find_spec(cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "torch.cpu":
            return None
        spec = super().find_spec(fullname, path, target)
        assert spec
        assert spec.loader
        load = spec.loader.exec_module

        def load_and_replace(module: ModuleType) -> None:
            load(module)
            said = vars(module)
            ask = said["get_capabilities"]
            said["_is_avx512_supported"] = said["_is_avx512_bf16_supported"] = lambda: False
            said["get_capabilities"] = lambda: {name: found for name, found in ask().items() if not name.startswith(_UNITS)}

        spec.loader.exec_module = load_and_replace
        return spec


sys.meta_path.insert(0, _TorchCpu)
