"""The mask is checked by decoding it: what is learned must read as what the assistant wrote."""

import copy
from typing import Any

import pytest
from transformers import AutoTokenizer

from drag_ray.engine.conversation import Conversation, read_conversation
from drag_ray.engine.embedded import embedded_model_dir
from drag_ray.engine.tokens import IGNORED_LABEL, tokenize_conversation
from drag_ray.errors import DataError, TrainError
from drag_ray.finetune.tokenized_rows import (
    tokenize_labelled,
    tokenize_pairs,
    tokenize_rows,
    tokenize_scored,
    tokenize_steps,
)


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


def test_the_end_of_turn_need_not_be_the_end_of_text(tokenizer: Any) -> None:
    other = copy.deepcopy(tokenizer)
    other.eos_token = other.pad_token = "<|endoftext|>"
    row = tokenize_conversation(Conversation(CONVERSATION[:3], (2,)), other)
    assert _decode_learned(row, other) == ["<search>rows</search><|im_end|>"]


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
        (
            {"prompt": CONVERSATION[:2], "completion": CONVERSATION[2:3], "images": ["aa/1.jpg"]},
            "row 1: .*shows 0 images in its messages and names 1",
        ),
    ],
)
def test_rows_that_teach_nothing_are_refused(tokenizer: Any, row: dict[str, Any], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        tokenize_rows([row], tokenizer, max_length=128)


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
    conversation = Conversation([*CONVERSATION[:2], _say("assistant", REPLY)], (2,))
    assert _decode_learned(tokenize_conversation(conversation, tokenizer, mask), tokenizer) == learned


def test_without_a_mask_the_prompt_is_learned_too(tokenizer: Any) -> None:
    row = tokenize_conversation(Conversation(CONVERSATION[:3], (2,)), tokenizer, "none")
    assert row["labels"] == row["input_ids"]


def test_the_reasoning_of_the_recorded_form_is_learned_apart_from_the_search(tokenizer: Any) -> None:
    row = tokenize_conversation(Conversation(CONVERSATION[:5], (4,)), tokenizer, "search_only")
    assert _decode_learned(row, tokenizer) == ["<search>rowing club</search>"]
    row = tokenize_conversation(Conversation(CONVERSATION[:5], (2, 4)), tokenizer, "search_think")
    learned = ["<search>rows</search>", "<think>try again</think>", "<search>rowing club</search>"]
    assert _decode_learned(row, tokenizer) == learned


def test_a_reply_without_anything_to_learn_is_refused_with_its_row(tokenizer: Any) -> None:
    row = {"prompt": CONVERSATION[:2], "completion": [_say("assistant", "<search>cut at the lim")]}
    with pytest.raises(DataError, match=r"row 1: a reply has nothing for the mask 'search_only'"):
        tokenize_rows([row], tokenizer, 512, "search_only")


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


def test_rows_keep_their_weight_and_functions(tokenizer: Any) -> None:
    row = {"prompt": CONVERSATION[:2], "completion": CONVERSATION[2:3], "weight": 0.25, "tools": '[{"type": "function"}]'}
    assert read_conversation(row).tools == [{"type": "function"}]
    assert tokenize_rows([{**row, "tools": None}], tokenizer, 512).rows[0]["weight"] == 0.25


PAIR = {
    "prompt": CONVERSATION[:2],
    "chosen": CONVERSATION[2:3],
    "rejected": [_say("assistant", "<search>oars and boats</search>")],
}


def test_both_sides_of_a_pair_continue_the_prompt_that_is_served(tokenizer: Any) -> None:
    tokenized = tokenize_pairs([PAIR], tokenizer, max_length=200)
    [pair] = tokenized.rows
    served = tokenizer.apply_chat_template(CONVERSATION[:2], add_generation_prompt=True, return_dict=False)
    learned = [_decode_learned(pair[side], tokenizer) for side in ("chosen", "rejected")]
    assert learned == [["<search>rows</search><|im_end|>"], ["<search>oars and boats</search><|im_end|>"]]
    assert all(pair[side]["input_ids"][: len(served)] == served for side in ("chosen", "rejected"))
    replies = [tokenizer(reply[0], add_special_tokens=False)["input_ids"] for reply in learned]
    assert tokenized.num_trained_tokens == sum(map(len, replies))


def test_a_pair_is_too_long_if_one_side_is(tokenizer: Any) -> None:
    [pair] = tokenize_pairs([PAIR], tokenizer, max_length=200).rows
    lengths = {side: len(pair[side]["input_ids"]) for side in ("chosen", "rejected")}
    assert lengths["chosen"] < lengths["rejected"]
    short = {**PAIR, "rejected": PAIR["chosen"]}
    tokenized = tokenize_pairs([PAIR, short], tokenizer, max_length=lengths["chosen"])
    assert (len(tokenized.rows), tokenized.num_too_long) == (1, 1)


def test_a_row_that_is_no_pair_is_refused_with_its_number(tokenizer: Any) -> None:
    no_pair = {"prompt": CONVERSATION[:2], "completion": CONVERSATION[2:3]}
    with pytest.raises(DataError, match=r"row 2: a preference pair lacks chosen, rejected\. Run: python jobs/format\.py"):
        tokenize_pairs([PAIR, no_pair], tokenizer, max_length=200)


def _build_scored(query: str, score: float, question: str = "") -> dict[str, Any]:
    prompt = [*CONVERSATION[:1], _say("user", question)] if question else CONVERSATION[:2]
    return {"prompt": prompt, "completion": [_say("assistant", f"<search>{query}</search>")], "score": score}


def test_replies_to_a_prompt_are_paired_with_those_that_scored_less(tokenizer: Any) -> None:
    rows = [_build_scored("a", 0.0), _build_scored("b", 1.0), _build_scored("c", 0.5), _build_scored("d", 0.0)]
    other = [_build_scored("e", 0.0, "other?"), _build_scored("f", 0.0, "other?"), _build_scored("g", 1.0, "alone?")]
    tokenized = tokenize_scored([*rows, *other], tokenizer, max_length=200)
    learned = [[_decode_learned(pair[side], tokenizer)[0][8] for side in ("chosen", "rejected")] for pair in tokenized.rows]
    assert sorted(map("".join, learned)) == ["ba", "bc", "bd", "ca", "cd"]
    assert tokenized.num_without_advantage == 3
    assert set(tokenized.rows[0]) == {"name", "chosen", "rejected", "image_keys"}
    assert tokenized.rows[0]["name"] == "2 over 1"


def test_a_scored_reply_that_is_too_long_or_none_is_counted_or_refused(tokenizer: Any) -> None:
    rows = [_build_scored("a", 0.0), _build_scored("b", 1.0), _build_scored("b " * 99, 1.0)]
    tokenized = tokenize_scored(rows, tokenizer, max_length=100)
    assert (len(tokenized.rows), tokenized.num_too_long) == (1, 1)
    with pytest.raises(DataError, match=r"row 1: a scored reply lacks score\. Run: python jobs/format\.py"):
        tokenize_scored([{name: rows[0][name] for name in ("prompt", "completion")}], tokenizer, max_length=200)


def test_a_labelled_reply_is_learned_whole_and_one_without_a_label_is_refused(tokenizer: Any) -> None:
    row = {**_build_scored("rotor", 0.0), "label": False}
    tokenized = tokenize_labelled([row], tokenizer, max_length=200)
    assert _decode_learned(tokenized.rows[0], tokenizer) == ["<search>rotor</search><|im_end|>"]
    assert tokenized.rows[0]["is_wanted"] is False
    with pytest.raises(DataError, match=r"row 1: a labelled reply lacks label\. Run: python jobs/format\.py"):
        tokenize_labelled([_build_scored("rotor", 0.0)], tokenizer, max_length=200)


def _build_step(tokenizer: Any, reply: str, drawn: list[int], advantage: float = 1.5) -> dict[str, Any]:
    return {
        "prompt": CONVERSATION[:2],
        "completion": [_say("assistant", reply)],
        "completion_token_ids": drawn,
        "advantage": advantage,
    }


@pytest.mark.parametrize("drawn", ["<search>rows</search>", "<search>rows</search><|im_end|>", "<search>ro"])
def test_of_a_step_the_tokens_that_were_drawn_are_learned_and_no_other(tokenizer: Any, drawn: str) -> None:
    served = tokenizer.apply_chat_template(CONVERSATION[:2], add_generation_prompt=True, return_dict=False)
    ids = [token for letter in drawn[:8] for token in tokenizer(letter)["input_ids"]]  # not as the tokenizer would cut it
    ids += tokenizer(drawn[8:])["input_ids"]
    [row] = tokenize_steps([_build_step(tokenizer, drawn.removesuffix("<|im_end|>"), ids)], tokenizer, max_length=100).rows
    assert row["input_ids"] == served + ids
    assert row["labels"] == [IGNORED_LABEL] * len(served) + ids
    assert row["advantage"] == 1.5


def test_steps_without_advantage_are_left_out_and_counted(tokenizer: Any) -> None:
    ids = tokenizer("rows")["input_ids"]
    steps = [_build_step(tokenizer, "rows", ids, advantage) for advantage in (0.0, -0.5, 0.0)]
    tokenized = tokenize_steps(steps, tokenizer, max_length=100)
    assert [row["advantage"] for row in tokenized.rows] == [-0.5]
    assert tokenized.num_without_advantage == 2
    assert tokenize_steps(steps[:1], tokenizer, max_length=100).rows == []


def test_a_character_whose_last_bytes_were_not_drawn_is_no_other_reply(tokenizer: Any) -> None:
    whole = tokenizer("row 🚣")["input_ids"]
    cut = whole[:-1]
    assert tokenizer.decode(cut) == "row \ufffd"
    assert tokenize_steps([_build_step(tokenizer, "row \ufffd", cut)], tokenizer, max_length=100).rows


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"completion_token_ids": []}, r"row 1: a step holds no completion_token_ids.*Collect with"),
        ({"completion_token_ids": [100, 200, 300]}, r"row 1: the tokens of a step decode to .*another model drew them"),
        ({"advantage": None}, r"row 1: a step lacks advantage.*jobs/format\.py"),
    ],
)
def test_a_step_without_its_tokens_is_refused_with_its_number(tokenizer: Any, change: dict[str, Any], complaint: str) -> None:
    step = _build_step(tokenizer, "rows", tokenizer("rows")["input_ids"]) | change
    with pytest.raises(DataError, match=complaint):
        tokenize_steps([{name: value for name, value in step.items() if value is not None}], tokenizer, max_length=100)
