"""Pages of the site that are not written by hand: the options, from the docstrings of the configuration, and files of the root.

python docs/generated_pages.py FOLDER
"""

import re
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from drag_ray.config import BaseConfig
from drag_ray.pipeline.run_config import RunConfig

ROOT = Path(__file__).parents[1]
ROOT_FILES = {"changelog.md": "CHANGELOG.md", "contributing.md": "CONTRIBUTING.md"}
"""Pages that are files of the root."""
OPTIONS_PAGE = "options.md"
_INTRODUCTION = """# Options

Options come from their defaults, then the TOML file of `--config`, then the command line. In a file they stand in the table of
their section (`[collect]`, `limit = 100`), on the command line they follow its name (`--collect.limit 100`; `-` may stand for `_`
and `--no-collect.NAME` turns a switch off). `drag-ray COMMAND --help` shows those that a command reads, with the same texts.
"""


def write_options_page() -> str:
    """Every option with its type, its default and its text, a heading a section."""
    return "\n".join([_INTRODUCTION, "## The run\n", *_write_section(RunConfig, "")]) + "\n"


def write_root_page(name: str) -> str:
    """A file of the root as a page: its links lead from docs/ instead of the root."""
    text = (ROOT / ROOT_FILES[name]).read_text(encoding="utf-8")
    pages = {file: page for page, file in ROOT_FILES.items()}

    def turn(match: re.Match[str]) -> str:
        path, _, anchor = match[1].partition("#")
        path = pages.get(path, path.removeprefix("docs/"))
        return f"]({path}{'#' if anchor else ''}{anchor})"

    return re.sub(r"\]\((?!https?:)([^)]+)\)", turn, text)


def write_pages(folder: Path) -> None:
    """Write all of them into a folder of pages."""
    (folder / OPTIONS_PAGE).write_text(write_options_page(), encoding="utf-8")
    for name in ROOT_FILES:
        (folder / name).write_text(write_root_page(name), encoding="utf-8")


def _write_section(config_type: type[BaseModel], path: str) -> Iterator[str]:
    plain = {name: field for name, field in config_type.model_fields.items() if not _is_section(field)}
    if plain:
        yield "| option | values | default | |\n|---|---|---|---|"
        yield from (_write_option(f"{path}.{name}" if path else name, field) for name, field in plain.items())
        yield ""
    for name, field in config_type.model_fields.items():
        if _is_section(field):
            section: type[BaseModel] = field.annotation  # pyright: ignore[reportAssignmentType]
            inner = f"{path}.{name}" if path else name
            yield f"{'###' if path else '##'} {inner}\n\n{_describe_section(section, field)}\n"
            yield from _write_section(section, inner)


def _is_section(field: FieldInfo) -> bool:
    return isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)


def _describe_section(section: type[BaseModel], field: FieldInfo) -> str:
    """The first paragraph of its docstring, and what the field itself says."""
    own = (section.__doc__ or "").strip().split("\n\n")[0]
    inherited = own == (BaseConfig.__doc__ or "").strip()
    sentences = [" ".join(text.split()) for text in ("" if inherited else own, field.description or "") if text]
    return " ".join(sentence.rstrip(".") + "." for sentence in sentences)


def _write_option(path: str, field: FieldInfo) -> str:
    text = " ".join((field.description or "").split())
    cells = (f"`{path}`", _name_type(field.annotation), _write_default(field), text)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _write_default(field: FieldInfo) -> str:
    default = field.get_default(call_default_factory=True, validated_data={})
    if default is PydanticUndefined:
        return "required"
    if default in ("", None, ()) or (isinstance(default, Mapping) and not default):
        return "none"
    if isinstance(default, bool):
        return "on" if default else "off"
    if isinstance(default, Sequence) and not isinstance(default, str):
        return ", ".join(f"`{value}`" for value in default)
    return f"`{default}`"


def _name_type(annotation: Any) -> str:
    """A type in words, with the values that are allowed where they are few."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _name_type(inner[0])
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin in (Union, types.UnionType):
        return " or ".join(_name_type(one) for one in inner if one is not type(None))
    if origin in (tuple, list):
        return f"list of {_name_type(inner[0])}"
    if origin is dict:
        return f"table of {_name_type(inner[1])} by name"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"table ({annotation.__name__})"
    names = {bool: "switch", int: "whole number", float: "number", str: "text", Path: "path"}
    return names.get(annotation, "any value" if annotation is Any else str(getattr(annotation, "__name__", annotation)))


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
