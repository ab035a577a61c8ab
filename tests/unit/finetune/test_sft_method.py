"""Rows of the supervised kinds on their way into training."""

from typing import Any

import pytest
from conversation_cases import CONVERSATION, say

from drag_ray.engine.models.prompt_digest import compute_prompt_digest
from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.errors import DataError
from drag_ray.finetune.methods.dpo import DPO
from drag_ray.finetune.methods.method import Method
from drag_ray.finetune.methods.reward import RewardModelling
from drag_ray.finetune.methods.sft import SFT
from drag_ray.finetune.tokenized_rows import RowTokenizer


def test_long_rows_are_set_aside_and_counted(tokenizer: Any) -> None:
    short = {"prompt": CONVERSATION[1:2], "completion": CONVERSATION[2:3]}
    long = {"prompt": [say("user", "word " * 200)], "completion": CONVERSATION[2:3]}
    tokenized = SFT().tokenize([short, long, short], RowTokenizer(tokenizer, 128))
    assert len(tokenized.rows) == 2
    assert tokenized.num_too_long == 1
    reply = tokenizer("<search>rows</search><|im_end|>", add_special_tokens=False)["input_ids"]
    assert tokenized.num_trained_tokens == 2 * len(reply)
    with pytest.raises(DataError, match=r"all 1 rows have more than finetune\.max_length = 128"):
        SFT().tokenize([long], RowTokenizer(tokenizer, 128))


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
        SFT().tokenize([row], RowTokenizer(tokenizer, 128))


def test_a_reply_without_anything_to_learn_is_refused_with_its_row(tokenizer: Any) -> None:
    row = {"prompt": CONVERSATION[:2], "completion": [say("assistant", "<search>cut at the lim")]}
    with pytest.raises(DataError, match=r"row 1: a reply has nothing for the mask 'search_only'"):
        SFT(mask="search_only").tokenize([row], RowTokenizer(tokenizer, 512))


def digest_prompt(tokenizer: Any, *messages: dict[str, str]) -> str:
    rendered = tokenizer.apply_chat_template([*messages], add_generation_prompt=True, tokenize=False)
    return compute_prompt_digest(tokenizer(rendered)["input_ids"], [])


@pytest.mark.parametrize("method", [SFT(), RewardModelling(), DPO()], ids=lambda method: type(method).__name__)
def test_a_prompt_that_the_engine_had_otherwise_is_refused_unless_it_is_not_compared(tokenizer: Any, method: Method) -> None:
    reply, other = CONVERSATION[2:3], [say("assistant", "<search>oars</search>")]
    rows = [
        {"completion": reply, "score": 1.0, "chosen": reply, "rejected": other},
        {"completion": other, "score": 0.0, "chosen": reply, "rejected": other},
    ]
    told = [{"prompt": CONVERSATION[:2], "prompt_digest": digest_prompt(tokenizer, *CONVERSATION[:2]), **row} for row in rows]
    assert method.tokenize(told, RowTokenizer(tokenizer, 128)).rows
    changed = [*told[:1], {**told[1], "prompt": [*CONVERSATION[:1], say("user", "Who rows ?")]}]
    with pytest.raises(
        DataError, match=r"row 2: the prompt of a reply becomes \d+ tokens with 0 images, which are not those.*--no-fine"
    ):
        method.tokenize(changed, RowTokenizer(tokenizer, 128))
    assert method.tokenize([*told, *changed], RowTokenizer(tokenizer, 128, compares_prompts=False)).rows


def test_of_a_conversation_the_prompt_of_the_last_learned_reply_is_compared(tokenizer: Any) -> None:
    row = {"messages": CONVERSATION, "num_prompt_messages": 2, "train_turns": [True, True]}
    places = [place for place, message in enumerate(CONVERSATION) if message["role"] == "assistant"]
    first, last = (digest_prompt(tokenizer, *CONVERSATION[:place]) for place in places)
    assert SFT(rows="rejection").tokenize([row | {"prompt_digests": [first, last]}], RowTokenizer(tokenizer, 512)).rows
    assert SFT(rows="rejection").tokenize([row | {"prompt_digests": ["", ""]}], RowTokenizer(tokenizer, 512)).rows
    only_first = row | {"train_turns": [True, False], "prompt_digests": [first, "another"]}
    assert SFT(rows="rejection").tokenize([only_first], RowTokenizer(tokenizer, 512)).rows
    with pytest.raises(DataError, match="row 1: the prompt of a reply becomes"):
        SFT(rows="rejection").tokenize([row | {"prompt_digests": [first, first]}], RowTokenizer(tokenizer, 512))
    with pytest.raises(DataError, match="row 1: prompt_digests has 1 values for 2 assistant messages"):
        SFT(rows="rejection").tokenize([row | {"prompt_digests": [first]}], RowTokenizer(tokenizer, 512))


def build_weighted(weight: float, reply: str = "rows") -> dict[str, Any]:
    return {"prompt": CONVERSATION[:2], "completion": [say("assistant", reply)], "weight": weight, "tools": None}


def test_weights_are_those_of_their_rows_and_of_all_tokens_one_on_average(tokenizer: Any) -> None:
    rows = [build_weighted(0.25), build_weighted(1.0, "rows and oars"), build_weighted(0.1)]
    counts = [2, 5, 2]  # tokens, with that which ends the turn
    tokenized = SFT().tokenize(rows, RowTokenizer(tokenizer, 512))
    assert [len([label for label in row["labels"] if label != IGNORED_LABEL]) for row in tokenized.rows] == counts
    mean = (2 * 0.25 + 5 * 1.0 + 2 * 0.1) / 9
    assert [row["weight"] for row in tokenized.rows] == pytest.approx([0.25 / mean, 1 / mean, 0.1 / mean])
    equal = SFT().tokenize([build_weighted(0.3), build_weighted(0.3, "oars and rows")], RowTokenizer(tokenizer, 512))
    assert [row["weight"] for row in equal.rows] == pytest.approx([1, 1])


@pytest.mark.parametrize(
    ("weights", "complaint"),
    [
        ((1.0, -0.5), r"row 2: a training row has the weight -0\.5; expected a number that is 0 or more"),
        ((float("nan"),), "row 1: a training row has the weight nan"),
        ((float("inf"),), "row 1: a training row has the weight inf"),
        ((0.0, 0.0), "all training rows have the weight 0"),
    ],
)
def test_weights_that_cannot_be_are_refused(tokenizer: Any, weights: tuple[float, ...], complaint: str) -> None:
    with pytest.raises(DataError, match=complaint):
        SFT().tokenize(map(build_weighted, weights), RowTokenizer(tokenizer, 512))
