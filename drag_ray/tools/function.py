"""What the model is told of something that it can call, and what is made of the arguments that it gives."""

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, PydanticInvalidForJsonSchema, ValidationError

from drag_ray.errors import ConfigError, ToolError
from drag_ray.tools.schema import simplify_schema

_SHOWN_PROBLEMS = 3


class Arguments(BaseModel):
    """The arguments of a function: typed fields with descriptions for the model. What it gives beyond them is left out."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


@dataclass(frozen=True)
class Function:
    """Something that the model can call.

    Attributes:
        name: what the model calls it by; letters, digits, `_` and `-`.
        description: what it does, for the model.
        arguments: their types, and a description of each for the model.
    """

    name: str
    description: str
    arguments: type[BaseModel]

    def describe(self) -> dict[str, Any]:
        """The function as a chat template takes it, in OpenAI's form.

        Raises:
            ConfigError: its arguments cannot be said in JSON schema without a circle of references.
        """
        function = {"name": self.name, "description": self.description, "parameters": self._build_parameters()}
        return {"type": "function", "function": function}

    def read_arguments(self, arguments: str) -> Any:
        """What the model gave, as JSON, checked.

        Raises:
            ToolError: it is not what the function takes.
        """
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
