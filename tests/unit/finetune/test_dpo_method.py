"""Preference pairs on their way into DPO."""

from typing import Any

import pytest
from conversation_cases import CONVERSATION, decode_learned, say

from drag_ray.errors import DataError
from drag_ray.finetune.methods.dpo import DPO
from drag_ray.finetune.tokenized_rows import RowTokenizer

PAIR = {
    "prompt": CONVERSATION[:2],
    "chosen": CONVERSATION[2:3],
    "rejected": [say("assistant", "<search>oars and boats</search>")],
}


def test_both_sides_of_a_pair_continue_the_prompt_that_is_served(tokenizer: Any) -> None:
    tokenized = DPO().tokenize([PAIR], RowTokenizer(tokenizer, 200))
    [pair] = tokenized.rows
    served = tokenizer.apply_chat_template(CONVERSATION[:2], add_generation_prompt=True, return_dict=False)
    learned = [decode_learned(pair[side], tokenizer) for side in ("chosen", "rejected")]
    assert learned == [["<search>rows</search><|im_end|>"], ["<search>oars and boats</search><|im_end|>"]]
    assert all(pair[side]["input_ids"][: len(served)] == served for side in ("chosen", "rejected"))
    replies = [tokenizer(reply[0], add_special_tokens=False)["input_ids"] for reply in learned]
    assert tokenized.num_trained_tokens == sum(map(len, replies))


def test_a_pair_is_too_long_if_one_side_is(tokenizer: Any) -> None:
    [pair] = DPO().tokenize([PAIR], RowTokenizer(tokenizer, 200)).rows
    lengths = {side: len(pair[side]["input_ids"]) for side in ("chosen", "rejected")}
    assert lengths["chosen"] < lengths["rejected"]
    short = {**PAIR, "rejected": PAIR["chosen"]}
    tokenized = DPO().tokenize([PAIR, short], RowTokenizer(tokenizer, lengths["chosen"]))
    assert (len(tokenized.rows), tokenized.num_too_long) == (1, 1)


def test_a_row_that_is_no_pair_is_refused_with_its_number(tokenizer: Any) -> None:
    no_pair = {"prompt": CONVERSATION[:2], "completion": CONVERSATION[2:3]}
    with pytest.raises(DataError, match=r"row 2: a preference pair lacks chosen, rejected\. Run: python jobs/format\.py"):
        DPO().tokenize([PAIR, no_pair], RowTokenizer(tokenizer, 200))
