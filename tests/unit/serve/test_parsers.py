"""vLLM's parsers for the replies of each family of models."""

import inspect
import sys
from typing import Any

import pytest

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols.function_calls import FunctionCallsProtocol
from drag_ray.agent.record import AgentRecord
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.errors import ServeError
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.settings import FAMILIES, TRAINED_TOOL_CALLS, Family, Parsers, choose_parsers, read_template

QWEN3 = "{%- if tools %}<tools>{{ tools }}</tools> within <tool_call></tool_call>{% endif %}{% if enable_thinking is defined %}"


@pytest.mark.seconds  # of vLLM's imports, as the two below
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.tool_calls)
def test_every_family_s_parsers_are_vllm_s_and_know_its_mark(family: Family) -> None:
    from vllm.reasoning import ReasoningParserManager
    from vllm.tool_parsers import ToolParserManager

    parser: Any = ToolParserManager.get_tool_parser(family.tool_calls)
    engine = getattr(parser, "_parser_engine_cls", parser)
    modules = {base.__module__ for base in (*parser.__mro__, *engine.__mro__) if base.__module__.startswith("vllm.")}
    assert family.mark in "".join(inspect.getsource(sys.modules[module]) for module in modules)
    if family.reasoning:
        assert ReasoningParserManager.get_reasoning_parser(family.reasoning)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (QWEN3, Parsers("hermes", "qwen3")),
        ("<tool_call><function=name></function></tool_call>", Parsers("qwen3_coder", "qwen3")),
        ("[TOOL_CALLS]", Parsers("mistral")),
        ("<|im_start|>", Parsers()),
        ("", Parsers()),
    ],
)
def test_a_family_is_known_by_its_template(template: str, expected: Parsers) -> None:
    assert choose_parsers(ServeConfig(), template, True, []) == expected
    assert choose_parsers(ServeConfig(), template, False, []) == Parsers(expected.tool_calls)


def test_what_adapters_learned_goes_before_the_family() -> None:
    calls, silent = (AgentRecord(agent=AgentConfig(protocol=protocol, thinking=thinks)) for protocol, thinks in PAIRS)
    assert choose_parsers(ServeConfig(), "[TOOL_CALLS]", False, [calls]) == Parsers(TRAINED_TOOL_CALLS)
    assert choose_parsers(ServeConfig(), QWEN3, True, [calls]) == Parsers("hermes", "qwen3")
    assert choose_parsers(ServeConfig(), QWEN3, True, [calls, silent]) == Parsers("hermes")


PAIRS = (("tools", True), ("tags", False))


@pytest.mark.seconds
def test_vllm_reads_the_calls_that_the_protocol_teaches() -> None:
    from transformers import AutoTokenizer
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.tool_parsers import ToolParserManager

    text = FunctionCallsProtocol().render_search("rotor speed")
    parser = ToolParserManager.get_tool_parser(TRAINED_TOOL_CALLS)(AutoTokenizer.from_pretrained(embedded_model_dir()))
    found = parser.extract_tool_calls(text, ChatCompletionRequest.model_validate({"messages": []}))
    [call] = found.tool_calls
    assert (call.function.name, call.function.arguments) == ("search_documents", '{"query": "rotor speed"}')


@pytest.mark.seconds
def test_options_go_before_all_and_name_parsers_that_there_are() -> None:
    config = ServeConfig(tool_call_parser="pythonic", reasoning_parser="")
    assert choose_parsers(config, QWEN3, True, []) == Parsers("pythonic")
    for option in ("tool_call_parser", "reasoning_parser"):
        with pytest.raises(ServeError, match=rf"serve.{option} 'nobody': vLLM has no such parser. It has .*mistral"):
            choose_parsers(ServeConfig.model_validate({option: "nobody"}), QWEN3, True, [])


def test_what_is_not_read_is_said() -> None:
    assert Parsers("hermes").describe() == (
        "in replies to chats, tool calls are read by hermes, reasoning is left in the text (serve.reasoning_parser)"
    )


def test_the_embedded_model_shows_no_functions_and_does_not_reason() -> None:
    template, reasons = read_template(str(embedded_model_dir()))
    assert "<|im_start|>" in template
    assert not reasons
    assert choose_parsers(ServeConfig(), template, reasons, []) == Parsers()
