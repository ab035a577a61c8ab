"""Limits of one request."""

import json
from dataclasses import replace
from typing import Any

import pytest

from drag_ray.serve.config import ServeConfig
from drag_ray.serve.ingress.limits import Limits, RefusalError, parse_body

LIMITS = Limits(ServeConfig(max_body_mib=1, max_tokens=100, max_sequences=8, max_question_chars=40))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"max_tokens": 100, "n": 8},
        {"max_tokens": None, "n": None, "prompt": None},
        {"prompt": ["a"] * 4, "n": 2},
        {"prompt": [1, 2, 3, 4, 5, 6, 7, 8, 9]},
        {"prompt": [[1, 2], [3]], "n": 4},
        {"max_output_tokens": 7},
        {"prompt": [7] * 200_000},
        {"messages": [{"role": "user", "content": "a" * 2**20}]},
        {"tools": [{"description": "a" * 2**17}], "tool_choice": "auto"},
        {"prompt": "a" * 2**21, "truncation": "disabled"},
    ],
)
def test_what_lies_within_the_limits_goes_through(body: dict[str, Any]) -> None:
    LIMITS.check_generation(body)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"max_tokens": 101}, r"max_tokens is 101; .* 100 \(serve.max_tokens\)"),
        ({"max_completion_tokens": 10**9}, r"max_completion_tokens is 1000000000; .*serve.max_tokens"),
        ({"max_output_tokens": 101}, r"max_output_tokens is 101"),
        ({"n": 16_384}, r"16384 replies to each of 1 prompts .* 8 in all \(serve.max_sequences\)"),
        ({"n": 1, "best_of": 9}, r"9 replies"),
        ({"prompt": ["a"] * 9}, r"1 replies to each of 9 prompts"),
        ({"prompt": [[1], [2], [3]], "n": 3}, r"3 replies to each of 3 prompts"),
        ({"n": "16384"}, r"n must be an integer, got '16384'"),
        ({"n": 16384.0}, r"n must be an integer"),
        ({"max_tokens": [1]}, r"max_tokens must be an integer"),
        ({"prompt": [-1]}, r"prompt: a list of ids of tokens holds something else"),
        ({"prompt": [[1], [True]]}, r"prompt: a list of ids"),
        ({"structured_outputs": {"choice": ["a" * 2**16]}}, r"structured_outputs, and what else: 65,\d+ bytes"),
        ({"stop": "a", "bad_words": ["a" * 2**16]}, r"bad_words, and"),
        ({"tools": [{"description": "a" * 2**17}], "tool_choice": "required"}, r"tools, and"),
        ({"tools": [{"function": {"description": "a" * 2**17, "strict": True}}]}, r"tools, and"),
        ({"tools": [{"a": "a" * 2**17}], "tool_choice": "required", "structured_outputs": {}}, r"tools, and"),
        ({"prompt": "a" * 2**21, "truncate_prompt_tokens": 5}, r"is to be cut may have 1,048,576 bytes"),
        ({"input": "a" * 2**21, "truncation": "auto"}, r"is to be cut"),
        ({"input": [1] * 1_001}, r"input has 1,001 items; the endpoint allows 1,000"),
    ],
)
def test_what_lies_beyond_is_refused_with_the_limit(body: dict[str, Any], message: str) -> None:
    with pytest.raises(RefusalError, match=message) as error:
        LIMITS.check_generation(body)
    assert error.value.status == 400


SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"structured_outputs": {"regex": "(.?){500}x"}}, "structured_outputs"),
        ({"response_format": SCHEMA}, "response_format"),
        ({"response_format": "json_schema"}, "response_format"),
        ({"text": {"format": SCHEMA}}, "text"),
        ({"tools": [{"type": "function"}], "tool_choice": "required"}, "tools"),
        ({"tools": [{"type": "function"}], "tool_choice": {"type": "function"}}, "tools"),
        ({"tools": [{"type": "function", "function": {"strict": True}}]}, "tools"),
        ({"tools": [{"type": "function", "strict": True}]}, "tools"),
    ],
)
def test_forms_of_replies_are_refused_where_clients_may_give_none(body: dict[str, Any], name: str) -> None:
    LIMITS.check_generation(body)
    with pytest.raises(RefusalError, match=rf"{name}: the endpoint allows no constrained replies .*serve\.grammars"):
        Limits(ServeConfig(grammars=False)).check_generation(body)


@pytest.mark.parametrize(
    "body",
    [
        {"response_format": {"type": "json_object"}},
        {"text": {"format": {"type": "text"}, "verbosity": "low"}},
        {"tools": [{"type": "function", "function": {"strict": False}}], "tool_choice": "auto"},
        {"tools": None, "text": None, "structured_outputs": None},
    ],
)
def test_any_text_and_any_json_are_no_form_of_a_client(body: dict[str, Any]) -> None:
    Limits(ServeConfig(grammars=False)).check_generation(body)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user"}] * 5_001},
        {"messages": [1] * 10**6},
        {str(n): n for n in range(10_001)},
        {"a": [[[1] * 10**4]]},
    ],
)
def test_more_values_than_anybody_means_are_refused(body: dict[str, Any]) -> None:
    with pytest.raises(RefusalError, match="more than 10,000 values"):
        LIMITS.check_values(body)


@pytest.mark.parametrize("name", ["messages", "input"])
def test_more_images_than_are_decoded_at_once_are_refused(name: str) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}
    LIMITS.check_values({name: [{"role": "user", "content": [image] * 32}]})
    with pytest.raises(RefusalError, match="the request holds 33 images; the endpoint allows 32"):
        LIMITS.check_values({name: [{"role": "user", "content": [image] * 30}, {"role": "user", "content": [image] * 3}]})


def test_a_long_chat_and_a_prompt_of_ids_are_no_such_thing() -> None:
    LIMITS.check_values({"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}] * 1_000})
    LIMITS.check_values({"prompt": [7] * 200_000})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"n"', b"\xff", b"[" * 200_000, b'{"n": ' + b"9" * 5000 + b"}"])
def test_what_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(RefusalError) as error:
        parse_body(body)
    assert error.value.status == 400


def test_the_last_of_two_equal_names_counts_as_it_does_for_vllm() -> None:
    text = b'{"n": 1, "n": 99}'
    assert json.loads(text)["n"] == 99
    with pytest.raises(RefusalError):
        LIMITS.check_generation(parse_body(text))


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "a", "prompt_logprobs": 0},
        {"prompt": "a", "prompt_logprobs": False},
        {"prompt": "a", "echo": True, "logprobs": 0},
        {"messages": [], "echo": True},
    ],
)
def test_log_probabilities_of_a_prompt_are_refused_where_they_end_the_engine(body: dict[str, Any]) -> None:
    LIMITS.check_generation(body)
    with pytest.raises(RefusalError, match=r"prompt_logprobs, echo: on a CPU .* allowed_token_ids"):
        replace(LIMITS, allows_prompt_logprobs=False).check_generation(body)


def test_log_probabilities_of_replies_and_echoes_alone_are_given_everywhere() -> None:
    for body in ({"prompt": "a", "echo": True}, {"prompt": "a", "logprobs": 3}, {"messages": [], "logprobs": True}):
        replace(LIMITS, allows_prompt_logprobs=False).check_generation(body)
