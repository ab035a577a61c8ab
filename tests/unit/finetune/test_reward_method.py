"""Scored queries on their way into a reward model."""

from typing import Any

import pytest
from conversation_cases import CONVERSATION, decode_learned, say

from drag_ray.errors import DataError
from drag_ray.finetune.methods.reward import RewardModelling
from drag_ray.finetune.tokenized_rows import RowTokenizer


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
