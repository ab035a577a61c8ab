"""Rows on their way into training: supervised ones, preference pairs, scored queries, and steps in drawn tokens."""

from typing import Any

import pytest
from conversation_cases import CONVERSATION, decode_learned, say

from drag_ray.engine.generate import compute_prompt_digest
from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.errors import DataError
from drag_ray.finetune.methods.dpo import DPO
from drag_ray.finetune.methods.grpo import GRPO, StepCollator, choose_temperature
from drag_ray.finetune.methods.method import AdapterMethod
from drag_ray.finetune.methods.reward import RewardModelling
from drag_ray.finetune.methods.sft import SFT
from drag_ray.finetune.rows.tokenized_rows import RowTokenizer

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


def test_a_pair_is_too_long_if_one_side_is_and_a_row_that_is_none_is_refused_with_its_number(tokenizer: Any) -> None:
    [pair] = DPO().tokenize([PAIR], RowTokenizer(tokenizer, 200)).rows
    lengths = {side: len(pair[side]["input_ids"]) for side in ("chosen", "rejected")}
    assert lengths["chosen"] < lengths["rejected"]
    short = {**PAIR, "rejected": PAIR["chosen"]}
    tokenized = DPO().tokenize([PAIR, short], RowTokenizer(tokenizer, lengths["chosen"]))
    assert (len(tokenized.rows), tokenized.num_too_long) == (1, 1)
    no_pair = {"prompt": CONVERSATION[:2], "completion": CONVERSATION[2:3]}
    with pytest.raises(DataError, match=r"row 2: a preference pair lacks chosen, rejected\. Run: python jobs/format\.py"):
        DPO().tokenize([PAIR, no_pair], RowTokenizer(tokenizer, 200))


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


def test_steps_without_advantage_are_left_out_and_counted_and_others_taken_as_they_are(tokenizer: Any) -> None:
    ids = tokenizer("rows")["input_ids"]
    steps = [build_step(tokenizer, "rows", ids, advantage) for advantage in (0.0, -0.5, 0.1 + 0.2 - 0.3)]
    tokenized = GRPO().tokenize(steps, RowTokenizer(tokenizer, 100))
    assert [row["advantage"] for row in tokenized.rows] == [-0.5]
    assert tokenized.num_without_advantage == 2
    assert GRPO().tokenize(steps[:1], RowTokenizer(tokenizer, 100)).rows == []
    steps = [build_step(tokenizer, "rows", ids, advantage) for advantage in (0.02, -7.5, 0.02)]
    assert [row["advantage"] for row in GRPO().tokenize(steps, RowTokenizer(tokenizer, 100)).rows] == [0.02, -7.5, 0.02]


def test_steps_that_no_policy_drew_are_left_out_and_counted(tokenizer: Any) -> None:
    ids = tokenizer("rows")["input_ids"]
    tokenized = GRPO().tokenize(
        [build_step(tokenizer, "oars", [], 2.0), build_step(tokenizer, "rows", ids)], RowTokenizer(tokenizer, 100)
    )
    assert [row["name"] for row in tokenized.rows] == ["2"]
    assert (tokenized.num_off_policy, tokenized.num_without_advantage) == (1, 0)


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
    assert all(values.is_contiguous() for values in batch.values())  # a loader for a GPU pins them


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


def build_scored(query: str, score: float, question: str = "") -> dict[str, Any]:
    prompt = [*CONVERSATION[:1], say("user", question)] if question else CONVERSATION[:2]
    return {"prompt": prompt, "completion": [say("assistant", f"<search>{query}</search>")], "score": score}


def test_replies_to_a_prompt_are_paired_with_those_that_scored_less(tokenizer: Any) -> None:
    rows = [build_scored("a", 0.0), build_scored("b", 1.0), build_scored("c", 0.5), build_scored("d", 0.0)]
    other = [build_scored("e", 0.0, "other?"), build_scored("f", 0.0, "other?"), build_scored("g", 1.0, "alone?")]
    tokenized = RewardModelling().tokenize([*rows, *other], RowTokenizer(tokenizer, 200))
    learned = [[decode_learned(pair[side], tokenizer)[0][8] for side in ("chosen", "rejected")] for pair in tokenized.rows]
    assert sorted(map("".join, learned)) == ["ba", "bc", "bd", "ca", "cd"]
    assert tokenized.num_without_advantage == 3
    assert set(tokenized.rows[0]) == {"name", "chosen", "rejected", "image_keys"}
    assert tokenized.rows[0]["name"] == "2 over 1"


def test_a_scored_reply_that_is_too_long_or_none_is_counted_or_refused(tokenizer: Any) -> None:
    rows = [build_scored("a", 0.0), build_scored("b", 1.0), build_scored("b " * 99, 1.0)]
    tokenized = RewardModelling().tokenize(rows, RowTokenizer(tokenizer, 100))
    assert (len(tokenized.rows), tokenized.num_too_long) == (1, 1)
    with pytest.raises(DataError, match=r"row 1: a scored reply lacks score\. Run: python jobs/format\.py"):
        RewardModelling().tokenize([{name: rows[0][name] for name in ("prompt", "completion")}], RowTokenizer(tokenizer, 200))


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
def test_a_prompt_that_the_engine_had_otherwise_is_refused_unless_it_is_not_compared(
    tokenizer: Any, method: AdapterMethod
) -> None:
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
