"""Choice of vLLM's parsers of tool calls and reasoning in the replies to /v1/chat/completions and /v1/responses."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from drag_ray.agent.record import AgentRecord
from drag_ray.engine.reasoning import THINK
from drag_ray.errors import ServeError
from drag_ray.serve.config import AUTO, ServeConfig


@dataclass(frozen=True)
class Family:
    """Models that write tool calls in one form, which stands in their chat templates.

    Attributes:
        mark: what no other family's template holds, of those that come after it in `FAMILIES`.
        tool_calls: vLLM's parser of calls.
        reasoning: vLLM's parser of reasoning, for those of the family that reason; empty where none is known.
    """

    mark: str
    tool_calls: str
    reasoning: str = ""


FAMILIES = (
    Family("<function=", "qwen3_coder", "qwen3"),
    Family("<arg_key>", "glm45", "glm45"),
    Family("tool▁calls▁begin", "deepseek_v3", "deepseek_r1"),
    Family("<|tool_calls_section_begin|>", "kimi_k2", "kimi_k2"),
    Family("[TOOL_CALLS]", "mistral"),
    Family("<|python_tag|>", "llama3_json"),
    Family("<tool_call>", "hermes", "qwen3"),  # Qwen2.5, Qwen3, Qwen3-VL
)
TRAINED_TOOL_CALLS = "hermes"
"""Of the calls that `agent.protocol` tools teaches any model."""


@dataclass(frozen=True)
class Parsers:
    """Names of vLLM's parsers; empty for what is not read, which then stands in the text of a reply."""

    tool_calls: str = ""
    reasoning: str = ""

    def describe(self) -> str:
        """The parsers, in a line."""
        tool_calls = f"read by {self.tool_calls}" if self.tool_calls else "left in the text (serve.tool_call_parser)"
        reasoning = f"read by {self.reasoning}" if self.reasoning else "left in the text (serve.reasoning_parser)"
        return f"in replies to chats, tool calls are {tool_calls}, reasoning is {reasoning}"


def choose_parsers(config: ServeConfig, template: str, reasons: bool, records: Iterable[AgentRecord]) -> Parsers:
    """The parsers that the options name, or those of the model's family, which its chat template shows.

    Args:
        config: may name parsers.
        template: the model's chat template.
        reasons: whether the model reasons unless it is told not to.
        records: how the adapters are asked. One endpoint has one parser for all of its models, so what they learned goes before.

    Raises:
        ServeError: vLLM has no parser of this name.
    """
    family = next((family for family in FAMILIES if family.mark in template), Family("", ""))
    agents = [record.agent for record in records]
    tool_calls = TRAINED_TOOL_CALLS if any(agent.protocol == "tools" for agent in agents) else family.tool_calls
    # vLLM takes all of a reply for reasoning that does not say where its reasoning ends.
    reasoning = family.reasoning if reasons and all(agent.thinking for agent in agents) else ""
    chosen = Parsers(
        tool_calls if config.tool_call_parser == AUTO else config.tool_call_parser,
        reasoning if config.reasoning_parser == AUTO else config.reasoning_parser,
    )
    _check_names(config)
    return chosen


def read_template(model_dir: str) -> tuple[str, bool]:
    """The chat template of a model, empty for one without, and whether the model reasons unless it is told not to.

    Args:
        model_dir: folder or Hugging Face name.
    """
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(model_dir)
    template: str = tokenizer.chat_template or ""
    if THINK not in template:
        return template, False
    question = [{"role": "user", "content": "?"}]
    opening: str = tokenizer.apply_chat_template(question, add_generation_prompt=True, tokenize=False)
    return template, "enable_thinking" in template or opening.rstrip().endswith(THINK)


def _check_names(config: ServeConfig) -> None:
    for option, name in (("tool_call_parser", config.tool_call_parser), ("reasoning_parser", config.reasoning_parser)):
        if name in ("", AUTO):
            continue
        from vllm.reasoning import ReasoningParserManager
        from vllm.tool_parsers import ToolParserManager

        known = (ToolParserManager if option == "tool_call_parser" else ReasoningParserManager).list_registered()
        if name not in known:
            raise ServeError(f"serve.{option} {name!r}: vLLM has no such parser. It has {', '.join(sorted(known))}.")
