"""Functions that the model can call: their schemas as it is shown them, and the validation of the arguments that it gives."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, PydanticInvalidForJsonSchema, ValidationError

from drag_ray.errors import ConfigError, ToolError

_ORDER = ("type", "description", "enum", "properties", "items", "required")
_DEFINITIONS = "$defs"
_PREFIXES = (f"#/{_DEFINITIONS}/", "#/definitions/")


def simplify_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of an object with each reference replaced by what it refers to, and without titles. Raises ValueError where it is
    none of an object, or a reference leads to itself or nowhere."""
    definitions = {**schema.get("definitions", {}), **schema.get(_DEFINITIONS, {})}
    simplified = _simplify(schema, definitions, ())
    if simplified.get("type") != "object":
        raise ValueError(f"they are of type {simplified.get('type')!r}, expected 'object'")
    simplified.pop("description", None)  # of the class, which is not for the model
    return {**simplified, "properties": simplified.get("properties", {})}


def _simplify(schema: dict[str, Any], definitions: dict[str, Any], open_references: tuple[str, ...]) -> dict[str, Any]:
    if "$ref" in schema:
        reference = str(schema["$ref"])
        name = next((reference.removeprefix(prefix) for prefix in _PREFIXES if reference.startswith(prefix)), "")
        if name in open_references:
            raise ValueError(f"the reference {reference!r} leads to itself")
        if name not in definitions:
            raise ValueError(f"the reference {reference!r} leads nowhere")
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return _simplify({**definitions[name], **rest}, definitions, (*open_references, name))

    def visit(value: Any) -> Any:
        if isinstance(value, dict):
            return _simplify(value, definitions, open_references)
        return [visit(item) for item in value] if isinstance(value, list) else value

    kept = {key: value for key, value in schema.items() if key not in ("title", "$schema", _DEFINITIONS, "definitions")}
    visited = {
        # The names of properties are the user's: one may be called `title`.
        key: {name: visit(item) for name, item in value.items()}
        if key == "properties"
        else value
        if key in ("default", "enum", "const", "examples")
        else visit(value)
        for key, value in kept.items()
    }
    return dict(sorted(visited.items(), key=lambda item: _ORDER.index(item[0]) if item[0] in _ORDER else len(_ORDER)))


_SHOWN_PROBLEMS = 3


class Arguments(BaseModel):
    """The arguments of a function: typed fields with descriptions for the model. What it gives beyond them is left out."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


@dataclass(frozen=True)
class Function:
    """A function that the model can call by its name (letters, digits, `_` and `-`), with a description of it and of its
    arguments for the model."""

    name: str
    description: str
    arguments: type[BaseModel]

    def describe(self) -> dict[str, Any]:
        """The function as a chat template takes it, in OpenAI's form. Raises ConfigError where its arguments cannot be said in
        JSON schema without a circle of references."""
        function = {"name": self.name, "description": self.description, "parameters": self._build_parameters()}
        return {"type": "function", "function": function}

    def read_arguments(self, arguments: str) -> Any:
        """The model's JSON arguments, validated. Raises ToolError where it is not what the function takes."""
        try:
            return self.arguments.model_validate_json(arguments)
        except (ValidationError, RecursionError) as error:
            raise ToolError(f"{self.name}: {_describe_problems(error)}") from None

    def _build_parameters(self) -> dict[str, Any]:
        try:
            return simplify_schema(self.arguments.model_json_schema())
        except (PydanticInvalidForJsonSchema, RecursionError, ValueError) as error:
            raise ConfigError(
                f"tool {self.name!r}: its arguments have no JSON schema that a model can be shown: {error}"
            ) from None


def _describe_problems(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return "the arguments cannot be read"
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    shown = [f"{'.'.join(map(str, problem['loc'])) or 'arguments'}: {problem['msg']}" for problem in problems[:_SHOWN_PROBLEMS]]
    return "; ".join(shown)
