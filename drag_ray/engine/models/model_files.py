"""Files in the folder of a model or an adapter: JSON objects, names and shapes of weights. None are loaded."""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from drag_ray.errors import TrainError
from drag_ray.storage.json_text import parse_json

ADAPTER_WEIGHTS_NAME = "adapter_model.safetensors"
WEIGHTS_NAME = "model.safetensors"
WEIGHTS_PATTERN = "*model*.safetensors"
"""The files of weights of an adapter, or of a model in one or several of them."""
_WEIGHTS_INDEX_NAME = "model.safetensors.index.json"
LANGUAGE_MODELS = ("model.language_model.", "language_model.model.")
"""Where the language model of a multimodal one lies for transformers and for vLLM. vLLM maps the first to the second, and to it
what the checkpoints of the family have."""
VISION_MODULES = (
    "visual|vision_tower|vision_model|vision_encoder|image_tower|video_tower|vision_embed_tokens|high_res_vision_neck"
)
PROJECTOR_MODULES = (
    "merger|deepstack_merger_list|multi_modal_projector|mm_projector|projector|connector|embed_vision|aligner|vision_projection|"
    "language_projection|image_to_text_projection|qformer|resampler_model|visual_embeddings_table|high_res_vision_proj"
)
"""What lies between vision and language, within the vision part or beside it."""
IMAGE_MODULES = rf"(.*\.)?({VISION_MODULES}|{PROJECTOR_MODULES})(\..*|$)"
"""A pattern of the whole names of both, and of what is in them."""


def read_object(path: Path, expected: str) -> dict[str, Any]:
    """The object in a JSON file. Raises TrainError where there is no such file, or it holds something else. `expected`: what
    holds such a file, as the error says it."""
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TrainError(f"{path}: no such file, so {path.parent} is not {expected}. Check the path.") from None
    except (OSError, ValueError) as error:
        raise TrainError(f"{path}: cannot be read as JSON ({error}); expected {expected}.") from None
    if not isinstance(value, dict):
        raise TrainError(f"{path}: holds a {type(value).__name__}, expected the object of {expected}.")
    return value


def read_shapes(weights_path: Path) -> dict[str, list[int]]:
    """The shapes of the tensors of a safetensors file by their names. Raises TrainError where it is none."""
    try:
        with weights_path.open("rb") as stream:
            (header_bytes,) = struct.unpack("<Q", stream.read(8))
            if header_bytes > weights_path.stat().st_size:
                raise ValueError(f"its header claims to have {header_bytes:,} bytes")
            header = parse_json(stream.read(header_bytes))
        return {name: list(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__"}
    except (OSError, ValueError, struct.error, AttributeError, KeyError, TypeError) as error:
        raise TrainError(
            f"{weights_path}: not a readable safetensors file ({error}). Copy it again, or run finetune again if that wrote it."
        ) from None


def read_module_names(model_dir: Path) -> frozenset[str]:
    """The modules of a model that have weights, as its checkpoint names them; empty where no safetensors are there (yet). Raises
    TrainError: what is there cannot be read."""
    names: Iterable[str] = ()
    if (index_path := model_dir / _WEIGHTS_INDEX_NAME).is_file():
        weight_map: Any = read_object(index_path, "the folder of a model in several files").get("weight_map")
        if not isinstance(weight_map, dict):
            raise TrainError(f"{index_path}: its weight_map is no object. Copy the model again.")
        names = cast("dict[str, Any]", weight_map)
    elif (weights_path := model_dir / WEIGHTS_NAME).is_file():
        names = read_shapes(weights_path)
    return frozenset(name.rpartition(".")[0] for name in names)
