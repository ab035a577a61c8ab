"""Desirable and undesirable replies on their way into KTO."""

from typing import Any

import pytest
from conversation_cases import CONVERSATION, decode_learned, say
from pydantic import ValidationError

from drag_ray.errors import DataError
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.methods.kto import KTO, KTOCollator, balance, pair_replies
from drag_ray.finetune.tokenized_rows import RowTokenizer

REPLY = {"prompt": CONVERSATION[:2], "completion": [say("assistant", "<search>rotor</search>")]}


def test_a_labelled_reply_is_learned_whole_and_one_without_a_label_is_refused(tokenizer: Any) -> None:
    row = {**REPLY, "label": False}
    tokenized = KTO().tokenize([row], RowTokenizer(tokenizer, 200))
    assert decode_learned(tokenized.rows[0], tokenizer) == ["<search>rotor</search><|im_end|>"]
    assert tokenized.rows[0]["label"] is False
    with pytest.raises(DataError, match=r"row 1: a labelled reply lacks label\. Run: python jobs/format\.py"):
        KTO().tokenize([REPLY], RowTokenizer(tokenizer, 200))


def build_reply(prompt: int, reply: int, images: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"input_ids": [prompt, reply], "labels": [-100, reply], "label": True, "image_keys": list(images)}


def list_others(rows: list[dict[str, Any]]) -> list[int]:
    """The reply that each row's prompt is given."""
    assert all(row["other_reply"]["input_ids"][0] == row["input_ids"][0] for row in rows)
    assert all(row["other_reply"]["labels"] == [-100, row["other_reply"]["input_ids"][1]] for row in rows)
    return [row["other_reply"]["input_ids"][1] for row in rows]


def test_the_other_reply_is_that_of_the_row_before_with_another_prompt() -> None:
    rows = [build_reply(1, 11), build_reply(1, 12), build_reply(2, 21), build_reply(2, 22), build_reply(3, 31)]
    assert list_others(pair_replies(rows)) == [31, 31, 12, 12, 22]
    shown = [build_reply(1, 11, ("a.jpg",)), build_reply(1, 12, ("a.jpg",)), build_reply(1, 13, ("b.jpg",))]
    assert list_others(pair_replies(shown)) == [13, 13, 12]
    assert list_others(pair_replies(shown[:2])) == [12, 11]


def test_no_row_is_its_own_reference_however_few_there_are() -> None:
    rows = [build_reply(1, 11), build_reply(2, 21), build_reply(3, 31)]
    assert list_others(pair_replies(rows[:1], rows[1:])) == [31]  # one for validation
    [last] = [KTOCollator(0)([row]) for row in pair_replies(rows)[2:]]  # what an epoch of batches of two ends with
    assert last["KL_input_ids"].tolist() == [[3, 21]]
    with pytest.raises(DataError, match="kto needs two rows at least"):
        pair_replies(rows[:1])


def test_beside_each_reply_stands_its_prompt_with_the_reply_before() -> None:
    rows = [
        {"input_ids": [1, 2, 3], "labels": [-100, -100, 3], "label": True, "image_keys": []},
        {"input_ids": [4, 5, 6], "labels": [-100, 5, 6], "label": False, "image_keys": []},
    ]
    batch = {name: tensor.tolist() for name, tensor in KTOCollator(0)(pair_replies(rows)).items()}
    assert batch == {
        "input_ids": [[1, 2, 3], [4, 5, 6]],
        "attention_mask": [[1, 1, 1], [1, 1, 1]],
        "completion_mask": [[0, 0, 1], [0, 1, 1]],
        "KL_input_ids": [[1, 2, 5, 6], [4, 3, 0, 0]],
        "KL_attention_mask": [[1, 1, 1, 1], [1, 1, 0, 0]],
        "KL_completion_mask": [[0, 0, 1, 1], [0, 1, 0, 0]],
        "label": [True, False],
    }


@pytest.mark.parametrize(
    ("num_desirable", "num_undesirable", "weights"),
    [(2, 6, (3, 1)), (6, 2, (1, 3)), (4, 4, (1, 1)), (0, 5, (1, 1)), (5, 0, (1, 1))],
)
def test_the_rarer_kind_counts_more(num_desirable: int, num_undesirable: int, weights: tuple[int, int]) -> None:
    assert balance([True] * num_desirable + [False] * num_undesirable) == weights


def test_a_batch_of_one_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"batch_size 1: kto estimates .* Set batch_size to 2 or more"):
        FinetuneConfig(method="kto", batch_size=1)
