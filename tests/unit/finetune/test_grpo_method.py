"""Steps in the tokens that the policy drew, on their way into GRPO."""

from typing import Any

import pytest
from conversation_cases import CONVERSATION, say

from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.errors import DataError
from drag_ray.finetune.methods.grpo import GRPO, StepCollator, choose_temperature
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
    steps = [build_step(tokenizer, "rows", ids, advantage) for advantage in (0.0, -0.5, 0.1 + 0.2 - 0.3)]
    tokenized = GRPO().tokenize(steps, RowTokenizer(tokenizer, 100))
    assert [row["advantage"] for row in tokenized.rows] == [-0.5]
    assert tokenized.num_without_advantage == 2
    assert GRPO().tokenize(steps[:1], RowTokenizer(tokenizer, 100)).rows == []


def test_steps_that_no_policy_drew_are_left_out_and_counted(tokenizer: Any) -> None:
    ids = tokenizer("rows")["input_ids"]
    tokenized = GRPO().tokenize(
        [build_step(tokenizer, "oars", [], 2.0), build_step(tokenizer, "rows", ids)], RowTokenizer(tokenizer, 100)
    )
    assert [row["name"] for row in tokenized.rows] == ["2"]
    assert (tokenized.num_off_policy, tokenized.num_without_advantage) == (1, 0)


def test_advantages_are_taken_as_they_are(tokenizer: Any) -> None:
    ids = tokenizer("rows")["input_ids"]
    steps = [build_step(tokenizer, "rows", ids, advantage) for advantage in (0.02, -7.5, 0.02)]
    assert [row["advantage"] for row in GRPO().tokenize(steps, RowTokenizer(tokenizer, 100)).rows] == [0.02, -7.5, 0.02]


def test_what_the_engine_recorded_stands_beside_the_tokens_that_it_drew(tokenizer: Any) -> None:
    ids = tokenizer("rows and oars")["input_ids"]
    recorded = [-0.5 * place for place in range(len(ids))]
    told = build_step(tokenizer, "rows and oars", ids) | {"completion_logprobs": recorded, "temperature": 0.7}
    untold = build_step(tokenizer, "rows and oars", ids) | {"completion_logprobs": [], "temperature": 0.0}
    rows = GRPO().tokenize([told, untold], RowTokenizer(tokenizer, 100)).rows
    assert [row["temperature"] for row in rows] == [0.7, 1.0]  # of a greedy draw nothing at its own can be learned
    batch = StepCollator(tokenizer.pad_token_id)(rows)
    is_drawn = batch["labels"] != IGNORED_LABEL
    assert batch["engine_log_probabilities"][0][is_drawn[0]].tolist() == recorded
    assert batch["engine_log_probabilities"][~is_drawn].isnan().all()
    assert batch["engine_log_probabilities"][1].isnan().all()


@pytest.mark.parametrize(("drawn_at", "compared_at"), [([0.7, 0.7], 0.7), ([0.7, 1.0], 1.0), ([0.3, 0.7], 1.0)])
def test_policies_are_compared_at_the_temperature_of_the_draws_if_it_is_one(drawn_at: list[float], compared_at: float) -> None:
    assert choose_temperature(drawn_at) == compared_at


def test_a_character_whose_last_bytes_were_not_drawn_is_no_other_reply(tokenizer: Any) -> None:
    whole = tokenizer("row 🚣")["input_ids"]
    cut = whole[:-1]
    assert tokenizer.decode(cut) == "row \ufffd"
    assert GRPO().tokenize([build_step(tokenizer, "row \ufffd", cut)], RowTokenizer(tokenizer, 100)).rows


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"completion_token_ids": []}, r"all 1 steps hold no completion_token_ids.*Collect with"),
        ({"completion_logprobs": [-0.5] * 9}, r"row 1: a step has 9 completion_logprobs for \d completion_token_ids"),
        ({"completion_token_ids": [100, 200, 300]}, r"row 1: the tokens of a step decode to .*another model drew them"),
        ({"advantage": None}, r"row 1: a step lacks advantage.*jobs/format\.py"),
    ],
)
def test_a_step_without_its_tokens_is_refused_with_its_number(tokenizer: Any, change: dict[str, Any], complaint: str) -> None:
    step = build_step(tokenizer, "rows", tokenizer("rows")["input_ids"]) | change
    with pytest.raises(DataError, match=complaint):
        GRPO().tokenize([{name: value for name, value in step.items() if value is not None}], RowTokenizer(tokenizer, 100))
