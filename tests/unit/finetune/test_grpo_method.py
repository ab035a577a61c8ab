"""Steps in the tokens that the policy drew, on their way into GRPO."""

from typing import Any

import pytest
from conversation_cases import CONVERSATION, say

from drag_ray.engine.tokens import IGNORED_LABEL
from drag_ray.errors import DataError
from drag_ray.finetune.methods.grpo import GRPO
from drag_ray.finetune.tokenized_rows import RowTokenizer


def build_step(tokenizer: Any, reply: str, drawn: list[int], advantage: float = 1.5) -> dict[str, Any]:
    return {
        "prompt": CONVERSATION[:2],
        "completion": [say("assistant", reply)],
        "completion_token_ids": drawn,
        "advantage": advantage,
    }


@pytest.mark.parametrize("drawn", ["<search>rows</search>", "<search>rows</search><|im_end|>", "<search>ro"])
def test_of_a_step_the_tokens_that_were_drawn_are_learned_and_no_other(tokenizer: Any, drawn: str) -> None:
    served = tokenizer.apply_chat_template(CONVERSATION[:2], add_generation_prompt=True, return_dict=False)
    ids = [token for letter in drawn[:8] for token in tokenizer(letter)["input_ids"]]  # not as the tokenizer would cut it
    ids += tokenizer(drawn[8:])["input_ids"]
    [row] = GRPO().tokenize([build_step(tokenizer, drawn.removesuffix("<|im_end|>"), ids)], RowTokenizer(tokenizer, 100)).rows
    assert row["input_ids"] == served + ids
    assert row["labels"] == [IGNORED_LABEL] * len(served) + ids
    assert row["advantage"] == 1.5


def test_steps_without_advantage_are_left_out_and_counted(tokenizer: Any) -> None:
    ids = tokenizer("rows")["input_ids"]
    steps = [build_step(tokenizer, "rows", ids, advantage) for advantage in (0.0, -0.5, 0.0)]
    tokenized = GRPO().tokenize(steps, RowTokenizer(tokenizer, 100))
    assert [row["advantage"] for row in tokenized.rows] == [-0.5]
    assert tokenized.num_without_advantage == 2
    assert GRPO().tokenize(steps[:1], RowTokenizer(tokenizer, 100)).rows == []


def test_a_character_whose_last_bytes_were_not_drawn_is_no_other_reply(tokenizer: Any) -> None:
    whole = tokenizer("row 🚣")["input_ids"]
    cut = whole[:-1]
    assert tokenizer.decode(cut) == "row \ufffd"
    assert GRPO().tokenize([build_step(tokenizer, "row \ufffd", cut)], RowTokenizer(tokenizer, 100)).rows


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"completion_token_ids": []}, r"row 1: a step holds no completion_token_ids.*Collect with"),
        ({"completion_token_ids": [100, 200, 300]}, r"row 1: the tokens of a step decode to .*another model drew them"),
        ({"advantage": None}, r"row 1: a step lacks advantage.*jobs/format\.py"),
    ],
)
def test_a_step_without_its_tokens_is_refused_with_its_number(tokenizer: Any, change: dict[str, Any], complaint: str) -> None:
    step = build_step(tokenizer, "rows", tokenizer("rows")["input_ids"]) | change
    with pytest.raises(DataError, match=complaint):
        GRPO().tokenize([{name: value for name, value in step.items() if value is not None}], RowTokenizer(tokenizer, 100))
