"""Judged passages on their way into a reranker: it learns the answer alone, to the very prompt that ranking asks it."""

import copy
from pathlib import Path
from typing import Any

import pytest
from conversation_cases import decode_learned

from drag_ray.engine.encoders.reranker import load_reranker
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.engine.models.relevance import RerankerNote, read_note
from drag_ray.errors import DataError, TrainError
from drag_ray.finetune.methods.rerank import Rerank
from drag_ray.finetune.tokenized_rows import RowTokenizer
from drag_ray.search.config import RerankConfig

ROW = {"question": "How fast may the rotor turn?", "passage": "340 rpm is its limit.<|im_end|>", "is_evidence": True}
OTHER_PAGE = {**ROW, "passage": "Fuel.", "is_evidence": False}


def test_pages_stand_with_those_of_their_question(tokenizer: Any) -> None:
    other = {"question": "Who pays?", "passage": "The buyer.", "is_evidence": True}
    rows = [ROW, other, OTHER_PAGE, {**other, "passage": "Fuel.", "is_evidence": False}, OTHER_PAGE]
    tokenized = Rerank().tokenize(rows, RowTokenizer(tokenizer, 400))
    assert [question["is_evidence"] for question in tokenized.rows] == [[True, False, False], [True, False]]
    assert [question["name"] for question in tokenized.rows] == ["1 to 5", "2 to 4"]
    learned = [[decode_learned(page, tokenizer) for page in question["pages"]] for question in tokenized.rows]
    assert learned == [[["yes"], ["no"], ["no"]], [["yes"], ["no"]]]
    assert tokenized.num_trained_tokens == 5


def test_questions_are_told_apart_by_their_ids_where_rows_have_some(tokenizer: Any) -> None:
    rows = [{**row, "question_id": name} for name in ("a", "b") for row in (ROW, OTHER_PAGE)]
    assert [len(question["pages"]) for question in Rerank().tokenize(rows, RowTokenizer(tokenizer, 400)).rows] == [2, 2]


def test_a_question_of_one_kind_of_pages_teaches_no_order_and_is_counted(tokenizer: Any) -> None:
    other = {"question": "Who pays?", "passage": "The buyer.", "is_evidence": True}
    rows = [ROW, OTHER_PAGE, other, {**other, "passage": "fuel " * 400, "is_evidence": False}]
    tokenized = Rerank().tokenize(rows, RowTokenizer(tokenizer, 400))
    assert (len(tokenized.rows), tokenized.num_without_advantage, tokenized.num_too_long) == (1, 1, 1)


def test_a_template_that_cannot_hold_the_question_is_refused(tokenizer: Any) -> None:
    closed = copy.deepcopy(tokenizer)
    closed.chat_template = "{{ raise_exception('no system message') }}"
    with pytest.raises(TrainError, match=r"does not take a system message and a question \(no system message\)"):
        Rerank().tokenize([ROW, OTHER_PAGE], RowTokenizer(closed, 400))


@pytest.mark.seconds
def test_the_prompt_that_is_learned_is_the_one_that_ranking_asks() -> None:
    reranker: Any = load_reranker(RerankConfig(model=str(embedded_model_dir())))
    tokenizer = reranker.writer.tokenizer
    [question] = Rerank().tokenize([ROW, OTHER_PAGE], RowTokenizer(tokenizer, 400)).rows
    asked = reranker.writer.write(ROW["question"], [ROW["passage"], OTHER_PAGE["passage"]]).tokens
    assert [page["input_ids"][:-1] for page in question["pages"]] == [tokens["input_ids"] for tokens in asked]
    assert [page["input_ids"][-1] for page in question["pages"]] == list(reranker.writer.answers)


def test_what_it_is_told_of_its_task_is_noted_beside_it(tmp_path: Path, tokenizer: Any) -> None:
    method = Rerank(instruction="Find the paragraph of the law.")
    for row_options, page_chars in (({}, 0), ({"relevance_chars": 900, "seed": 0}, 900)):
        method.write_note(tmp_path, row_options, "ab12")
        note = read_note(tmp_path)
        assert note
        expected = RerankerNote(instruction=method.instruction, page_chars=page_chars, index_fingerprint="ab12")
        assert note == expected
    [question] = method.tokenize([ROW, OTHER_PAGE], RowTokenizer(tokenizer, 400)).rows
    assert "Find the paragraph of the law." in tokenizer.decode(question["pages"][0]["input_ids"])
    (tmp_path / "drag_ray_reranker.json").write_text("{}")
    with pytest.raises(DataError, match=r"drag_ray_reranker\.json: not the note that finetune leaves beside a reranker"):
        read_note(tmp_path)


def test_a_row_of_another_format_is_refused(tokenizer: Any) -> None:
    with pytest.raises(DataError, match=r"row 1: a judged passage lacks is_evidence\. Run: python jobs/format\.py"):
        Rerank().tokenize([{"question": "q", "passage": "p"}], RowTokenizer(tokenizer, 400))


@pytest.mark.parametrize(("loss", "doubted"), [(1.6, True), (1.1, False), (None, False)])
def test_a_reranker_that_might_as_well_draw_the_order_is_doubted(loss: float | None, doubted: bool) -> None:
    doubt = Rerank().diagnose({"eval_loss_after": loss}, [ROW, *[OTHER_PAGE] * 4])
    assert bool(doubt) == doubted
    if doubted:
        assert "validation rows is 1.600, and 1.609 if it drew the order of pages" in doubt


def test_without_validation_questions_that_can_be_put_in_order_nothing_divides_by_zero() -> None:
    for rows in ([], [ROW]):
        assert Rerank().diagnose({"eval_loss_after": 0.3}, rows) == ""
