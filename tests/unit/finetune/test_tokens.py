"""The mask is checked by decoding it: what is learned must read as what the assistant wrote."""

from typing import Any

import pytest
from transformers import AutoTokenizer

from drag_ray.engine.embedded import embedded_model_dir
from drag_ray.errors import DataError, TrainError
from drag_ray.finetune.tokens import IGNORED_LABEL, Conversation, read_conversation, tokenize_conversation, tokenize_rows


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(embedded_model_dir())


def _say(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


CONVERSATION = [
    _say("system", "Search."),
    _say("user", "Who rows?"),
    _say("assistant", "<search>rows</search>"),
    _say("user", "Page 3: nothing about <search>rowing</search>"),
    _say("assistant", "<think>try again</think>\n<search>rowing club</search>"),
    _say("user", "Page 9: the club"),
]


def _decode_learned(row: dict[str, list[int]], tokenizer: Any) -> list[str]:
    spans: list[list[int]] = [[]]
    for token, label in zip(row["input_ids"], row["labels"], strict=True):
        if label == IGNORED_LABEL:
            spans.append([])
        else:
            assert label == token
            spans[-1].append(token)
    return [tokenizer.decode(span) for span in spans if span]


def test_only_the_completion_and_its_end_of_turn_are_learned(tokenizer: Any) -> None:
    conversation = read_conversation({"prompt": CONVERSATION[:2], "completion": CONVERSATION[2:3], "score": 1.0})
    row = tokenize_conversation(conversation, tokenizer)
    assert _decode_learned(row, tokenizer) == ["<search>rows</search><|im_end|>"]
    assert tokenizer.decode(row["input_ids"]) == (
        "<|im_start|>system\nSearch.<|im_end|>\n<|im_start|>user\nWho rows?<|im_end|>\n"
        "<|im_start|>assistant\n<search>rows</search><|im_end|>\n"
    )


def test_the_prompt_has_the_tokens_that_the_model_is_given_when_it_serves(tokenizer: Any) -> None:
    row = tokenize_conversation(Conversation(CONVERSATION[:3], (2,)), tokenizer)
    served = tokenizer.apply_chat_template(CONVERSATION[:2], add_generation_prompt=True, return_dict=False)
    assert row["input_ids"][: len(served)] == served
    assert row["labels"][: len(served) + 1] == [IGNORED_LABEL] * len(served) + [row["input_ids"][len(served)]]


@pytest.mark.parametrize(
    ("train_turns", "learned"),
    [
        ([True, True], ["<search>rows</search><|im_end|>", "<think>try again</think>\n<search>rowing club</search><|im_end|>"]),
        ([False, True], ["<think>try again</think>\n<search>rowing club</search><|im_end|>"]),
        ([True, False], ["<search>rows</search><|im_end|>"]),
    ],
)
def test_of_a_trajectory_the_wanted_turns_are_learned(tokenizer: Any, train_turns: list[bool], learned: list[str]) -> None:
    row = {"messages": CONVERSATION, "num_prompt_messages": 2, "train_turns": train_turns}
    tokenized = tokenize_conversation(read_conversation(row), tokenizer)
    assert _decode_learned(tokenized, tokenizer) == learned
    assert "the club" not in tokenizer.decode(tokenized["input_ids"])  # nothing after the last learned turn is read


def test_a_reply_within_the_prompt_is_not_learned(tokenizer: Any) -> None:
    row = {"prompt": CONVERSATION[:4], "completion": CONVERSATION[4:5]}
    tokenized = tokenize_conversation(read_conversation(row), tokenizer)
    assert _decode_learned(tokenized, tokenizer) == ["<think>try again</think>\n<search>rowing club</search><|im_end|>"]


def test_a_turn_by_turn_row_has_the_tokens_of_the_whole_conversation(tokenizer: Any) -> None:
    tokenized = tokenize_conversation(Conversation(CONVERSATION[:5], (2, 4)), tokenizer)
    assert tokenizer.decode(tokenized["input_ids"]) == tokenizer.apply_chat_template(CONVERSATION[:5], tokenize=False)


def test_a_template_that_rewrites_earlier_turns_is_refused(tokenizer: Any) -> None:
    forgetful = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content if loop.last else '...' }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    changed = AutoTokenizer.from_pretrained(embedded_model_dir())
    changed.chat_template = forgetful
    with pytest.raises(TrainError, match="renders the conversation differently once message 2 is added"):
        tokenize_conversation(Conversation(CONVERSATION[:3], (2,)), changed)


def test_a_template_without_an_end_of_turn_token_is_refused(tokenizer: Any) -> None:
    endless = AutoTokenizer.from_pretrained(embedded_model_dir())
    endless.chat_template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    with pytest.raises(TrainError, match="would not learn to stop"):
        tokenize_conversation(Conversation(CONVERSATION[:3], (2,)), endless)


def test_long_rows_are_set_aside_and_counted(tokenizer: Any) -> None:
    short = {"prompt": CONVERSATION[1:2], "completion": CONVERSATION[2:3]}
    long = {"prompt": [_say("user", "word " * 200)], "completion": CONVERSATION[2:3]}
    tokenized = tokenize_rows([short, long, short], tokenizer, max_length=128)
    assert len(tokenized.rows) == 2
    assert tokenized.num_too_long == 1
    reply = tokenizer("<search>rows</search><|im_end|>", add_special_tokens=False)["input_ids"]
    assert tokenized.num_trained_tokens == 2 * len(reply)
    with pytest.raises(DataError, match=r"all 1 rows have more than finetune\.max_length = 128"):
        tokenize_rows([long], tokenizer, max_length=128)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"text": "x"}, r"row 1: a training row has the columns \['text'\]"),
        ({"prompt": CONVERSATION[:2], "completion": []}, "row 1: a training row has no assistant message to learn"),
        ({"messages": CONVERSATION, "num_prompt_messages": 2, "train_turns": [False, False]}, "no assistant message to learn"),
        ({"messages": CONVERSATION, "num_prompt_messages": 2, "train_turns": [True]}, "1 values for 2 assistant messages"),
    ],
)
def test_rows_that_teach_nothing_are_refused(tokenizer: Any, row: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        tokenize_rows([row], tokenizer, max_length=128)
