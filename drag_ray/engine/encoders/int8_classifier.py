"""A classifier of sequences in 8 bits on a CPU: exported to ONNX when it is loaded, and run by ONNX Runtime.

The weights of what is read token by token are rounded to 8 bits per column (to 7 where a processor needs that), and what goes
through them per batch, so that the score of a text depends a little on those beside it. The head, which makes the logits, stays
in 32 bits. Nothing that was exported is kept: an export takes seconds, and no file can be half written or of other weights.
"""

import io
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from transformers.modeling_outputs import SequenceClassifierOutput

from drag_ray.errors import ConfigError
from drag_ray.extras import explain_missing

_OPSET = 17
_MAX_THREADS = 8
"""More do not make a small model faster, and the engine's host has many cores."""
_PROBES = (("a question", "text"), ("another one", "a longer text, which the export was not made with " * 3), ("one", ""))
_TOLERANCE = 1e-3


class Int8Classifier(torch.nn.Module):
    """Stands in a cross-encoder where its model of transformers was. Safe to share between threads. Raises MissingPackageError
    where ONNX Runtime is not installed, and ConfigError where the model cannot be exported."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        super().__init__()
        self.config = model.config
        with explain_missing("serve"):
            import onnx
            import onnxruntime
            from onnxruntime.quantization import QuantType, quantize_dynamic
            from onnxruntime.quantization.quant_utils import add_pre_process_metadata
        how = {"padding": True, "truncation": True, "return_tensors": "pt"}
        traced, probes = (dict(tokenizer([list(pair) for pair in pairs], **how)) for pairs in (_PROBES[:2], _PROBES))
        self._names = list(traced)
        model.set_attn_implementation("eager")  # the other's guards against rows that are masked whole take an eighth of the time
        graph = _export(model.eval(), traced)
        with torch.inference_mode():
            expected = model(**probes).logits
        # What the trace took for a constant would be wrong for batches of other shapes.
        self._session: Any = _open(onnxruntime, graph)
        if not torch.allclose(self(**probes).logits, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
            raise _refuse("its export gives other scores")
        read = onnx.load_from_string(graph)
        add_pre_process_metadata(read)  # else the library advises a step that changes nothing here
        with tempfile.TemporaryDirectory(prefix="drag-ray-int8-") as folder:
            path = Path(folder) / "model.onnx"
            options: dict[str, Any] = {"per_channel": True, "weight_type": QuantType.QInt8, "reduce_range": _saturates()}
            quantize_dynamic(read, path, op_types_to_quantize=["MatMul"], **options)
            self._session = _open(onnxruntime, path.read_bytes())

    def forward(self, **inputs: Any) -> SequenceClassifierOutput:
        """The logits, (n, labels). What else sentence-transformers hands to a model is left."""
        [logits] = self._session.run(None, {name: inputs[name].numpy() for name in self._names})
        found: Any = torch.from_numpy(logits)
        return SequenceClassifierOutput(logits=found)


class _Logits(torch.nn.Module):
    """A classifier that takes its inputs by place and gives its logits alone, as an export wants it."""

    def __init__(self, model: Any, names: list[str]) -> None:
        super().__init__()
        self._model = model
        self._names = names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self._model(**dict(zip(self._names, inputs, strict=True))).logits


def _export(model: Any, traced: dict[str, torch.Tensor]) -> bytes:
    """The model's graph for batches of any shape. Raises ConfigError where it cannot be exported."""
    buffer: Any = io.BytesIO()
    axes = {name: {0: "texts", 1: "tokens"} for name in traced}
    options: dict[str, Any] = {"input_names": list(traced), "output_names": ["logits"], "dynamic_axes": axes}
    options |= {"opset_version": _OPSET, "dynamo": False}  # the other exporter needs two packages more
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of constants in the trace, which is compared with the model
            torch.onnx.export(_Logits(model, list(traced)).eval(), tuple(traced.values()), buffer, **options)
    except Exception as error:  # the exporter raises what it meets in a model that it does not understand
        raise _refuse(str(error).partition("\n")[0][:300]) from None
    return buffer.getvalue()


def _saturates() -> bool:
    """True for processors that cut the sum of two products of 8 bits at 16 bits: weights of 7 bits never come to more."""
    units = torch.cpu.get_capabilities()
    return units["architecture"] == "x86_64" and not any(units.get(name) for name in ("avx_vnni", "avx512_vnni"))


def _open(onnxruntime: Any, graph: bytes) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = min(len(os.sched_getaffinity(0)), _MAX_THREADS)  # Ray sets those of PyTorch to 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # the engine needs the cores between requests
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _refuse(reason: str) -> ConfigError:
    return ConfigError(f"rerank.dtype int8: the model cannot be run by ONNX Runtime ({reason}). Set it to bfloat16.")
