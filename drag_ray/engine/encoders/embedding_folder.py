"""Folders of sentence-transformers: what they say of how a model makes one vector of a text.

They are read here, and the model by transformers, so that nobody needs that package: most of its models are a transformer, one
pooling of its token vectors, and perhaps normalising. A folder that asks for anything else is refused.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.errors import ConfigError
from drag_ray.storage.object_store import is_uri

_FILES = ("*.json", "*.safetensors", "*.txt", "*.model")
"""What is taken of a model on the Hugging Face Hub: no code, and none of the formats of other programs."""
_LAYOUTS = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
_POOLINGS = {"cls": "cls_token", "mean": "mean_tokens", "lasttoken": "lasttoken"}
"""Each with what older folders call it."""
_OLD_PREFIX = "pooling_mode_"
_PAGE_PROMPTS = ("document", "passage", "corpus")


T = TypeVar("T")


class _Module(BaseModel):
    """An entry of `modules.json`."""

    type: str
    path: str = Field(default="", pattern=r"^[\w-]*$")
    """a folder beside the file, and none elsewhere"""


class _Said(BaseModel):
    """`config_sentence_transformers.json`."""

    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    similarity_fn_name: str | None = None


class _Limits(BaseModel):
    """`sentence_bert_config.json`."""

    max_seq_length: int | None = None
    do_lower_case: bool | None = None


@dataclass(frozen=True)
class EmbeddingFolder:
    """What the folder of an embedding model says.

    Attributes:
        transformer_dir: tokenizer and weights.
        pooling: cls, mean or lasttoken: of which token vectors a text's vector is made.
        normalises: whether vectors have length 1, so that inner products are cosines.
        max_tokens: that the model reads; 0 where only its tokenizer says it.
        lowercases: whether texts become lower case before the tokenizer sees them.
        query_prompt, page_prompt: text before each query and each page.
    """

    transformer_dir: Path
    pooling: str
    normalises: bool
    max_tokens: int = 0
    lowercases: bool = False
    query_prompt: str = ""
    page_prompt: str = ""


def read_embedding_folder(model: str) -> EmbeddingFolder:
    """Read what a model says of itself, not its weights.

    Args:
        model: a folder, or a name on the Hugging Face Hub, from where it is fetched.

    Raises:
        ConfigError: there is no such model, or it is of a kind that cannot be read here.
    """
    folder = locate_model(model, "embedding.model")
    kinds, paths = read_modules(folder)
    if kinds not in _LAYOUTS:
        raise ConfigError(
            f"{folder / 'modules.json'}: the model is made of {', '.join(kinds)}; expected Transformer, Pooling and perhaps "
            "Normalize. Name another as embedding.model, for example sentence-transformers/all-MiniLM-L6-v2."
        )
    transformer_dir = folder / paths[0]
    said = _read_json(folder / "config_sentence_transformers.json", _Said, default=_Said())
    limits = _read_json(transformer_dir / "sentence_bert_config.json", _Limits, default=_Limits())
    prompts = {name: text for name, text in (said.prompts or {}).items() if text}
    default_prompt = prompts.get(said.default_prompt_name or "", "")
    return EmbeddingFolder(
        transformer_dir=transformer_dir,
        pooling=_read_pooling(folder / paths[1] / "config.json", has_prompt=bool(prompts)),
        normalises=kinds[-1] == "Normalize" or _reads_cosines(folder, said.similarity_fn_name or "cosine"),
        max_tokens=limits.max_seq_length or 0,
        lowercases=bool(limits.do_lower_case),
        query_prompt=prompts.get("query", default_prompt),
        page_prompt=next((prompts[name] for name in _PAGE_PROMPTS if name in prompts), default_prompt),
    )


def read_modules(folder: Path) -> tuple[list[str], list[str]]:
    """The kinds of a model's modules and their folders within its own, in order.

    Raises:
        ConfigError: `modules.json` is missing, or says something else.
    """
    modules = _read_json(folder / "modules.json", list[_Module])
    return [module.type.rpartition(".")[2] for module in modules], [module.path for module in modules]


def resolve_name(model: str) -> str:
    """The name by which a model is found from anywhere: a folder's absolute path, its name on the Hub or its URI."""
    folder = Path(model).expanduser()
    return str(folder.resolve()) if folder.is_dir() else model


def locate_model(model: str, option: str) -> Path:
    """The folder of a model, which is fetched if it is one of the Hugging Face Hub or lies in an object store.

    Args:
        option: that names it.

    Raises:
        ConfigError: there is no such model.
    """
    folder = Path(resolve_model(model) if is_uri(model) else resolve_name(model))
    if folder.is_dir():
        return folder
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(model, allow_patterns=list(_FILES)))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{option} {model!r}: no such folder, and no model that the Hugging Face Hub gives us ({error})."
        ) from None


def _read_pooling(path: Path, *, has_prompt: bool) -> str:
    config = _read_json(path, dict[str, Any])
    known = {f"{_OLD_PREFIX}{old}": name for name, old in _POOLINGS.items()}
    chosen = [known.get(key, key) for key, value in config.items() if key.startswith(_OLD_PREFIX) and value]
    modes = config.get("pooling_mode", chosen)
    modes = list(map(str, modes)) if isinstance(modes, list) else [str(modes)]
    if len(modes) != 1 or modes[0] not in _POOLINGS:
        raise ConfigError(f"{path}: the pooling is {', '.join(modes) or 'none'}; expected one of {', '.join(_POOLINGS)}.")
    if has_prompt and not config.get("include_prompt", True):
        raise ConfigError(f"{path}: the model pools without its prompts (include_prompt), which cannot be done here.")
    return modes[0]


def _reads_cosines(folder: Path, name: str) -> bool:
    """Whether scores are cosines, as they are where a folder says nothing, and not inner products of any length."""
    if name not in ("cosine", "dot"):
        raise ConfigError(f"{folder}: the model's vectors are compared by {name}; expected cosine or dot.")
    return name == "cosine"


def _read_json(path: Path, kind: type[T], default: T | None = None) -> T:
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except FileNotFoundError:
        if default is not None:
            return default
        raise ConfigError(f"{path}: no such file. embedding.model must be a model of sentence-transformers.") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ConfigError(f"{path}: {f'{place}: ' if place else ''}{first['msg']}, got {first['input']!r:.80}.") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error}).") from None
