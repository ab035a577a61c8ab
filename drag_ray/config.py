"""Options: one schema, three sources. Defaults give way to a TOML file, the file to the command line.

A stage declares its own section in its `config.py`; `Config` puts the sections together, so that one
TOML file describes a whole run and every job reads the sections it needs from it.
"""

import difflib
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, CliSettingsSource, SettingsConfigDict, SettingsError

from drag_ray.errors import ConfigError
from drag_ray.removed import explain_option

SECRET_ERROR = "secret"
"""The type of a validation error whose input may be a secret, so that it is not repeated."""
_ARGPARSE_PREFIX = "error parsing CLI: "
_MAX_LINE_CHARS = 10_000
_UNKNOWN = "unrecognized arguments: "
_SECTION_VALUE = re.compile(r'value for field "(\w+)" from source')


def _check_variable(name: str) -> str:
    """The name; a refusal does not repeat what is none, for it may be the secret."""
    if name and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", name):
        raise PydanticCustomError(
            SECRET_ERROR, "expected the name of an environment variable, for example OPENAI_API_KEY, not the key itself"
        )
    return name


VariableName = Annotated[str, AfterValidator(_check_variable)]
"""The name of an environment variable; empty for none."""


class BaseConfig(BaseModel):
    """Root of every configuration section: immutable, no unknown keys or infinite numbers, docstrings of fields are help."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True, allow_inf_nan=False
    )


@dataclass(frozen=True)
class Sections:
    """The options that a stage receives: a dataclass with a field for each section of the configuration, named as there."""

    @classmethod
    def list_names(cls) -> tuple[str, ...]:
        """The names of the sections."""
        return tuple(item.name for item in fields(cls))

    def dump(self) -> dict[str, Any]:
        """The options as JSON, by the names of the sections."""
        values = {name: getattr(self, name) for name in self.list_names()}
        return {name: value.model_dump(mode="json") if isinstance(value, BaseModel) else value for name, value in values.items()}

    def list_sources(self) -> Mapping[str, Path | tuple[Path, ...] | str]:
        """The sources of the stage outside the run, by what each is called there: a file, a folder, or several, or a URI."""
        return {}

    def list_code(self) -> list[Path]:
        """Files of the user's own whose code the stage runs.

        Raises:
            ConfigError: they cannot be had.
        """
        return []

    def check(self) -> None:
        """ConfigError where the options cannot be worked with together; asked before any stage of a pipeline works."""

    def list_unread(self) -> tuple[str, ...]:
        """Stages that are read, but not with these options."""
        return ()


def check_files(named: Mapping[str, Path]) -> None:
    """ConfigError where an option names a file or folder that there is not, before a stage sets aside what it has finished."""
    for option, path in named.items():
        if not path.exists():
            raise ConfigError(f"{option} {str(path)!r}: no such file or folder. Check the path.")


ConfigT = TypeVar("ConfigT", bound=BaseConfig)


def load(
    config_type: type[ConfigT], argv: Sequence[str], sections: Sequence[str] = (), program: str = "", description: str = ""
) -> ConfigT:
    """Read a configuration: defaults, then the TOML file of `--config`, then the other arguments.

    Args:
        config_type: the whole configuration; a TOML file may set any of its keys.
        argv: command-line arguments without the program's name.
        sections: the keys that the command line offers; all when empty.
        program: the name that `--help` shows.
        description: the first lines of `--help`.

    Raises:
        ConfigError: names the key, where it was set, what was got and what is allowed; or a secret was set in one of the two, or
            an argument is no option.
        SystemExit: `--help`.
    """
    given = _read_command_line(config_type, argv, sections, program, description)
    config_path = given.pop("config", None)
    return build(config_type, given, Path(config_path) if config_path else None, place="command line")


def build(
    config_type: type[ConfigT], options: Mapping[str, Any], config_path: Path | None = None, place: str = "options"
) -> ConfigT:
    """A configuration of options in sections, above those of a TOML file.

    Args:
        config_type: the whole configuration.
        options: as in a TOML file, with a mapping for each section.
        config_path: the file; none where nothing is said.
        place: where the options are from, for the message.

    Raises:
        ConfigError: names the key, where it was set, what was got and what is allowed; or a secret was set.
    """
    from_file = _read_toml(config_path) if config_path else {}
    sources = {place: options} | ({str(config_path): from_file} if config_path else {})
    for source, values in sources.items():
        _refuse_secrets(config_type, values, source)
    return _validate(config_type, _merge(from_file, options), sources)


def override(config: ConfigT, options: Mapping[str, Any], place: str = "options", sections: Sequence[str] = ()) -> ConfigT:
    """A configuration with some of its options replaced, checked as if they had been given so.

    Args:
        config: the configuration.
        options: as in a TOML file, with a mapping for each section.
        place: where they are from, for the message.
        sections: the keys that may be among them; all when empty.

    Raises:
        ConfigError: as `build` does, or a key is not among the sections.
    """
    for key in options:
        if sections and key not in sections:
            raise ConfigError(f"{place}: unknown key {key!r}. {_suggest(key, sections)}")
    _refuse_secrets(type(config), options, place)
    return _validate(type(config), _merge(_list_given(config), options), {place: options})


def _list_given(config: BaseModel) -> dict[str, Any]:
    """The given values of a configuration, the sections as mappings. A record of it would leave out what does not count."""
    values = {name: getattr(config, name) for name in config.model_fields_set}
    return {name: _list_given(value) if isinstance(value, BaseModel) else value for name, value in values.items()}


def _validate(config_type: type[ConfigT], values: Mapping[str, Any], sources: Mapping[str, Mapping[str, Any]]) -> ConfigT:
    try:
        return config_type.model_validate(values)
    except ValidationError as error:
        raise ConfigError(_explain(error, config_type, sources)) from None


def _read_command_line(
    config_type: type[BaseConfig], argv: Sequence[str], sections: Sequence[str], program: str, description: str
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        name: (field.annotation, field) for name, field in config_type.model_fields.items() if not sections or name in sections
    }
    options = create_model("Options", __base__=_Options, __doc__=description, **fields)
    words = _repeat_options(argv, {name for name, field in _list_options(options) if _takes_several(field.annotation)})
    try:
        return CliSettingsSource(options, cli_prog_name=program or None, cli_parse_args=words, cli_exit_on_error=False)()
    except SettingsError as error:
        raise ConfigError(_explain_argument(str(error), [name for name, _ in _list_options(options)])) from None


def _repeat_options(argv: Sequence[str], several: Collection[str]) -> list[str]:
    """`--names a b` as `--names a --names b`, which pydantic reads, for the options that take several values."""
    words: list[str] = []
    option, has_value = "", False
    for word in argv:
        if word.startswith("--"):
            name, _, value = word.partition("=")
            option, has_value = name if name in several else "", bool(value)
        elif option:
            words += [option] if has_value else []
            has_value = True
        words.append(word)
    return words


def _takes_several(annotation: Any) -> bool:
    return any(get_origin(part) in (tuple, list, dict) for part in (annotation, *get_args(annotation)))


def _explain_argument(message: str, options: Sequence[str]) -> str:
    """The message of argparse about an argument, with the option that was probably meant."""
    if section := _SECTION_VALUE.search(message):
        same_name = [f", or {option}" for option in options if option.endswith(f".{section[1]}")]
        return f"command line: --{section[1]} is a section. Set one of its options{''.join(same_name)}. `--help` lists them."
    reason = message.removeprefix(_ARGPARSE_PREFIX)
    unknown = [word.partition("=")[0] for word in reason.split() if word.startswith("--")] if _UNKNOWN in reason else []
    close = [match for name in unknown for match in difflib.get_close_matches(name, options, n=1)]
    removed = [explained for name in unknown if (explained := explain_option(name))]
    hint = " ".join(removed) or (f"Did you mean {' and '.join(close)}?" if close else "")
    return f"command line: {reason}. {hint}{' ' if hint else ''}`--help` lists the options."


def _list_options(config_type: type[BaseModel], section: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """The options of the command line, with the second one that turns a switch off, and the field of each."""
    for name, field in config_type.model_fields.items():
        option = section + name.replace("_", "-")
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _list_options(field.annotation, f"{option}.")
        else:
            names = (f"--{option}", f"--no-{option}") if field.annotation is bool else (f"--{option}",)
            yield from ((name, field) for name in names)


class _Options(BaseSettings):
    model_config = SettingsConfigDict(
        extra="forbid", cli_kebab_case=True, cli_avoid_json=True, cli_hide_none_type=True, cli_implicit_flags=True
    )

    # No docstring: pydantic would look for the source of each class that is made of this one, in every module there is.
    config: Path | None = Field(default=None, description="TOML file with any of these options; the command line overrides it")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        longest = max(map(len, text.splitlines()), default=0)
        if longest > _MAX_LINE_CHARS:  # for keys of thousands of parts the parser takes quadratic time
            raise ValueError(f"a line of {longest:,} characters, at most {_MAX_LINE_CHARS:,} are read")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"--config {path}: no such file. Shipped configurations are in jobs/configs/.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"--config {path}: not a readable TOML file ({error}).") from None


def _merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        both_are_tables = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], value) if both_are_tables else value
    return merged


def _refuse_secrets(config_type: type[BaseModel], values: Mapping[str, Any], place: str, section: str = "") -> None:
    """Refuse a secret where others could read it: in the process list, or in a file that is kept and shared with a run."""
    for name, field in config_type.model_fields.items():
        if name not in values:
            continue
        if field.annotation is SecretStr:
            raise ConfigError(
                f"{place}: {section}{name}: do not put a secret here, where others can read it: {field.description}."
            )
        if isinstance(values[name], Mapping) and isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            _refuse_secrets(field.annotation, values[name], place, f"{section}{name}.")


def _explain(error: ValidationError, config_type: type[BaseConfig], sources: Mapping[str, Mapping[str, Any]]) -> str:
    """The problems, a line each. `sources` are the values by where they were set, the first ones above the others."""
    lines: list[str] = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        place = next((place for place, values in sources.items() if _holds(values, problem["loc"])), "options")
        if problem["type"] == "extra_forbidden":
            names = [part for part in problem["loc"] if isinstance(part, str)]  # without places in lists
            hint = explain_option(".".join(names)) or _suggest_beside(config_type, problem["loc"])
            lines.append(f"{place}: unknown key {key!r}. {hint}")
        else:
            got = "" if problem["type"] in ("missing", SECRET_ERROR) else f", got {problem['input']!r}"
            lines.append(f"{place}: {key}: {problem['msg']}{got}.")
    return "\n".join(lines)


def _holds(values: Any, location: tuple[Any, ...]) -> bool:
    """True if the nested dictionary `values` sets the key at `location` (list positions are not followed)."""
    for part in location:
        if not isinstance(values, Mapping):
            return True
        if part not in values:
            return False
        values = values[part]
    return True


def _suggest_beside(config_type: type[BaseModel], location: tuple[Any, ...]) -> str:
    for part in location[:-1]:
        annotation = config_type.model_fields[str(part)].annotation
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return ""
        config_type = annotation
    return _suggest(str(location[-1]), config_type.model_fields)


def _suggest(key: str, allowed: Iterable[str]) -> str:
    allowed = sorted(allowed)
    close = difflib.get_close_matches(key, allowed, n=1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return f"{hint}Allowed here: {', '.join(allowed)}."
