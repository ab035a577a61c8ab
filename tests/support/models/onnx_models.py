"""Models in ONNX's format, written byte by byte: a chain of operators on one input, the last of which may enlarge."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

_FLOAT, _STRING = 1, 3
Dim = int | str


def write_onnx(path: Path, *operators: str, scale: int = 2, shape: Sequence[Dim] = (1, 3, "h", "w"), mode: str = "linear") -> str:
    """A model of these operators, each of which takes what the one before it makes; `Resize` makes it `scale` times as large.

    Args:
        shape: of the input; a name stands for any number.
        mode: how `Resize` fills in.
    """
    names = [f"t{number}" for number in range(len(operators) + 1)]
    nodes = [_node(operator, [names[place]], names[place + 1], mode) for place, operator in enumerate(operators)]
    scales = np.array([1, 1, scale, scale], "<f4").tobytes()
    tensor = _number(1, 4) + _number(2, _FLOAT) + _field(8, b"scales") + _field(9, scales)
    graph = b"".join(_field(1, node) for node in nodes) + _field(2, b"graph") + _field(5, tensor)
    graph += _field(11, _value(names[0], shape)) + _field(12, _value(names[-1], ("a", "b", "c", "d")))
    path.write_bytes(_number(1, 8) + _field(7, graph) + _field(8, _number(2, 13)))
    return str(path)


def _node(operator: str, inputs: list[str], output: str, mode: str) -> bytes:
    attributes = b""
    if operator == "Resize":
        inputs = [*inputs, "", "scales"]
        attributes = _field(5, _field(1, b"mode") + _field(4, mode.encode()) + _number(20, _STRING))
    named = b"".join(_field(1, name.encode()) for name in inputs)
    return named + _field(2, output.encode()) + _field(4, operator.encode()) + attributes


def _value(name: str, shape: Sequence[Dim]) -> bytes:
    dims = b"".join(_field(1, _field(2, dim.encode()) if isinstance(dim, str) else _number(1, dim)) for dim in shape)
    return _field(1, name.encode()) + _field(2, _field(1, _number(1, _FLOAT) + _field(2, dims)))


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _number(number: int, value: int) -> bytes:
    return _varint(number << 3) + _varint(value)


def _varint(value: int) -> bytes:
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(value & 0x7F)
    return bytes([*(group | 0x80 for group in groups[:-1]), groups[-1]])
