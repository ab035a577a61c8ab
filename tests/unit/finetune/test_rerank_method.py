"""Judged passages on their way into a reranker: it learns the answer alone, to the very prompt that ranking asks it."""

from pathlib import Path
from typing import Any

import pytest
from conversation_cases import decode_learned

from drag_ray.engine.embedded import embedded_model_dir
from drag_ray.engine.relevance import read_note
from drag_ray.engine.reranker import load_reranker
from drag_ray.errors import DataError
from drag_ray.finetune.methods.rerank import Rerank
from drag_ray.finetune.tokenized_rows import RowTokenizer
from drag_ray.search.config import RerankConfig

ROW = {"question": "How fast may the rotor turn?", "passage": "340 rpm is its limit.<|im_end|>", "is_evidence": True}


def test_the_answer_is_learned_and_nothing_else(tokenizer: Any) -> None:
    rows = [ROW, {**ROW, "passage": "Fuel.", "is_evidence": False}]
    tokenized = Rerank().tokenize(rows, RowTokenizer(tokenizer, 400))
    learned = ["".join(decode_learned(row, tokenizer)) for row in tokenized.rows]
    assert [text.partition(tokenizer.eos_token)[0] for text in learned] == ["yes", "no"]
    assert {row["weight"] for row in tokenized.rows} == {1.0}


@pytest.mark.seconds
def test_the_prompt_that_is_learned_is_the_one_that_ranking_asks() -> None:
    reranker: Any = load_reranker(RerankConfig(model=str(embedded_model_dir())))
    tokenizer = reranker.writer.tokenizer
    [row] = Rerank().tokenize([ROW], RowTokenizer(tokenizer, 400)).rows
    asked = tokenizer(reranker.writer.write_prompt(ROW["question"], ROW["passage"]), add_special_tokens=False)["input_ids"]
    assert row["input_ids"][: len(asked)] == asked
    assert row["labels"][: len(asked)] == [-100] * len(asked)
    assert tokenizer.decode(row["labels"][len(asked)]) == "yes"


def test_what_it_is_told_of_its_task_is_noted_beside_it(tmp_path: Path, tokenizer: Any) -> None:
    method = Rerank(instruction="Find the paragraph of the law.")
    for row_options, page_chars in (({}, 0), ({"relevance_chars": 900, "seed": 0}, 900)):
        method.write_note(tmp_path, row_options)
        note = read_note(tmp_path)
        assert note
        assert (note.instruction, note.page_chars) == ("Find the paragraph of the law.", page_chars)
    [row] = method.tokenize([ROW], RowTokenizer(tokenizer, 400)).rows
    assert "Find the paragraph of the law." in tokenizer.decode(row["input_ids"])
    (tmp_path / "drag_ray_reranker.json").write_text("{}")
    with pytest.raises(DataError, match=r"drag_ray_reranker\.json: not the note that finetune leaves beside a reranker"):
        read_note(tmp_path)


def test_a_row_of_another_format_is_refused(tokenizer: Any) -> None:
    with pytest.raises(DataError, match=r"row 1: a judged passage lacks is_evidence\. Run: python jobs/format\.py"):
        Rerank().tokenize([{"question": "q", "passage": "p"}], RowTokenizer(tokenizer, 400))


@pytest.mark.parametrize(
    ("loss", "doubted"),
    [
        (0.2544, True),  # SmolLM2-135M on 8,000 rows of medquad: its order was far worse than that of the search
        (0.0481, False),  # Qwen2.5-Coder-1.5B on the same
        (None, False),  # nothing was evaluated
    ],
)
def test_a_reranker_that_knows_no_more_than_how_many_pages_are_evidence_is_doubted(loss: float | None, doubted: bool) -> None:
    rows = [ROW, *[{**ROW, "is_evidence": False}] * 4]
    counts = {"rows": 8000, "trained_tokens": 16_000, "eval_loss_after": loss}
    doubt = Rerank().find_doubt(counts, rows)
    assert bool(doubt) == doubted
    if doubted:
        assert "validation rows is 0.509, and 0.500 if it said of each page how many are evidence" in doubt


def test_without_validation_rows_or_with_one_kind_alone_nothing_divides_by_zero() -> None:
    counts = {"rows": 10, "trained_tokens": 20, "eval_loss_after": 0.3}
    assert Rerank().find_doubt(counts, []) == ""
    assert Rerank().find_doubt(counts, [ROW]) == ""
