"""Check that a model's chat template shows functions to it, before an engine starts."""

from collections.abc import Sequence
from typing import Any

from drag_ray.engine.models.model_folder import resolve_model
from drag_ray.errors import ConfigError

_MESSAGES = [{"role": "system", "content": "Search."}, {"role": "user", "content": "?"}]


def check_functions_shown(model: str, functions: Sequence[dict[str, Any]]) -> None:
    """Refuse functions that the model would not see; nothing is loaded where there are none. Raises ConfigError where the
    template fails on a function, or leaves out its name, its description or one of its arguments."""
    if not functions:
        return
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(resolve_model(model))
    for function in functions:
        problem = _find_problem(tokenizer, function)
        if problem:
            raise ConfigError(
                f"tool {function['function']['name']!r}: the chat template of engine.model {model!r} {problem}. Change the "
                "tool's description, choose a model that was trained to call functions, or set agent.protocol to tags."
            )


def _find_problem(tokenizer: Any, function: dict[str, Any]) -> str:
    try:
        _render(tokenizer, function)
        marked, marks = _mark(function)
        text = _render(tokenizer, marked)
    except Exception as error:  # a template is a program, which raises what it likes
        return f"fails on it ({type(error).__name__}: {str(error)[:200]})"
    missing = [name for mark, name in marks.items() if mark not in text]
    return f"does not show {missing[0][:80]!r}" if missing else ""


def _render(tokenizer: Any, function: dict[str, Any]) -> str:
    return tokenizer.apply_chat_template(_MESSAGES, tools=[function], add_generation_prompt=True, tokenize=False)


def _mark(function: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The function with unique markers in place of its name, its description and its arguments, none of them required (an
    argument `x` would be found in every template); and the word that each marker replaces."""
    described = function["function"]
    properties = described["parameters"]["properties"]
    marks = {f"shown{place}shown": word for place, word in enumerate((described["name"], described["description"], *properties))}
    name, description, *names = marks
    parameters = {**described["parameters"], "properties": dict(zip(names, properties.values(), strict=True)), "required": []}
    return {**function, "function": {"name": name, "description": description, "parameters": parameters}}, marks
