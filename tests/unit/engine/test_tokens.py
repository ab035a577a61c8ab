"""The mask is checked by decoding it: what is learned must read as what the assistant wrote."""

import copy
from typing import Any

import pytest
from conversation_cases import CONVERSATION, decode_learned, say
from transformers import AutoTokenizer

from drag_ray.engine.conversation import Conversation, read_conversation
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.engine.models.tokens import IGNORED_LABEL, tokenize_conversation
from drag_ray.errors import TrainError


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(embedded_model_dir())


def test_only_the_completion_and_its_end_of_turn_are_learned(tokenizer: Any) -> None:
    conversation = read_conversation({"prompt": CONVERSATION[:2], "completion": CONVERSATION[2:3], "score": 1.0})
    row = tokenize_conversation(conversation, tokenizer)
    assert decode_learned(row, tokenizer) == ["<search>rows</search><|im_end|>"]
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
def test_of_a_trajectory_the_turns_to_train_are_learned(tokenizer: Any, train_turns: list[bool], learned: list[str]) -> None:
    row = {"messages": CONVERSATION, "num_prompt_messages": 2, "train_turns": train_turns}
    tokenized = tokenize_conversation(read_conversation(row), tokenizer)
    assert decode_learned(tokenized, tokenizer) == learned
    assert "the club" not in tokenizer.decode(tokenized["input_ids"])  # nothing after the last learned turn is read


def test_a_reply_within_the_prompt_is_not_learned(tokenizer: Any) -> None:
    row = {"prompt": CONVERSATION[:4], "completion": CONVERSATION[4:5]}
    tokenized = tokenize_conversation(read_conversation(row), tokenizer)
    assert decode_learned(tokenized, tokenizer) == ["<think>try again</think>\n<search>rowing club</search><|im_end|>"]


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


def test_the_end_of_turn_need_not_be_the_end_of_text(tokenizer: Any) -> None:
    other = copy.deepcopy(tokenizer)
    other.eos_token = other.pad_token = "<|endoftext|>"
    row = tokenize_conversation(Conversation(CONVERSATION[:3], (2,)), other)
    assert decode_learned(row, other) == ["<search>rows</search><|im_end|>"]


REPLY = "<think>The \u00fc-page <b>?</think><search>rowing club)</search> tail"


@pytest.mark.parametrize(
    ("mask", "learned"),
    [
        # "><" is one token, so the search begins with the bracket that ends the reasoning; ")</" is one at its end.
        ("search_only", ["><search>rowing club)</search>"]),
        ("search_think", ["<think>The \u00fc-page <b>?</think><search>rowing club)</search>"]),
        ("assistant", [f"{REPLY}<|im_end|>"]),
    ],
)
def test_a_mask_lets_its_part_of_a_reply_through(tokenizer: Any, mask: Any, learned: list[str]) -> None:
    conversation = Conversation([*CONVERSATION[:2], say("assistant", REPLY)], (2,))
    assert decode_learned(tokenize_conversation(conversation, tokenizer, mask), tokenizer) == learned


def test_without_a_mask_the_prompt_is_learned_too(tokenizer: Any) -> None:
    row = tokenize_conversation(Conversation(CONVERSATION[:3], (2,)), tokenizer, "none")
    assert row["labels"] == row["input_ids"]


def test_the_reasoning_of_the_recorded_form_is_learned_apart_from_the_search(tokenizer: Any) -> None:
    row = tokenize_conversation(Conversation(CONVERSATION[:5], (4,)), tokenizer, "search_only")
    assert decode_learned(row, tokenizer) == ["<search>rowing club</search>"]
    row = tokenize_conversation(Conversation(CONVERSATION[:5], (2, 4)), tokenizer, "search_think")
    learned = ["<search>rows</search>", "<think>try again</think>", "<search>rowing club</search>"]
    assert decode_learned(row, tokenizer) == learned


def test_labels_that_do_not_read_as_meant_are_refused(tokenizer: Any) -> None:
    class Shifted:
        """A tokenizer whose offsets are one character late."""

        def __getattr__(self, name: str) -> Any:
            return getattr(tokenizer, name)

        def __call__(self, text: str, **options: Any) -> Any:
            encoded = tokenizer(text, **options)
            if "offset_mapping" in encoded:
                encoded["offset_mapping"] = [(start + 1, end + 1) for start, end in encoded["offset_mapping"]]
            return encoded

    with pytest.raises(TrainError, match="the labels of a reply decode to"):
        tokenize_conversation(Conversation(CONVERSATION[:5], (4,)), Shifted(), "search_only")


def test_a_template_that_rewrites_replies_is_refused_where_the_mask_needs_their_words(tokenizer: Any) -> None:
    changed = AutoTokenizer.from_pretrained(embedded_model_dir())
    changed.chat_template = tokenizer.chat_template.replace("message['content']", "(message['content'] | upper)")
    with pytest.raises(TrainError, match="does not render a reply word for word"):
        tokenize_conversation(Conversation(CONVERSATION[:3], (2,)), changed, "search_only")


def test_functions_are_read_from_their_json() -> None:
    row = {"prompt": CONVERSATION[:2], "completion": CONVERSATION[2:3], "tools": '[{"type": "function"}]'}
    assert read_conversation(row).tools == [{"type": "function"}]
