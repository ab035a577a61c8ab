"""JSON schemas as models are shown them: without titles and references, keys in one order."""

from typing import Any

_ORDER = ("type", "description", "enum", "properties", "items", "required")
_DEFINITIONS = "$defs"
_PREFIXES = (f"#/{_DEFINITIONS}/", "#/definitions/")


def simplify_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema of an object with each reference replaced by what it refers to, and without titles.

    Raises:
        ValueError: it is none of an object, or a reference leads to itself or nowhere.
    """
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
