"""Training of a reranker: it learns the answer alone, to the prompt that ranking asks, with the loss that is defined."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from conversation_cases import decode_learned

from drag_ray.engine.encoders.reranker import load_reranker
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.engine.models.relevance import RerankerNote, read_note
from drag_ray.errors import DataError, TrainError
from drag_ray.finetune.methods.rerank import Rerank
from drag_ray.finetune.rows.tokenized_rows import RowTokenizer
from drag_ray.finetune.trainers.page_order import PageOrderTrainer, PagesCollator, compute_order_loss
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


def test_questions_are_told_apart_by_their_ids_and_those_of_one_kind_of_pages_are_counted(tokenizer: Any) -> None:
    rows = [{**row, "question_id": name} for name in ("a", "b") for row in (ROW, OTHER_PAGE)]
    assert [len(question["pages"]) for question in Rerank().tokenize(rows, RowTokenizer(tokenizer, 400)).rows] == [2, 2]
    other = {"question": "Who pays?", "passage": "The buyer.", "is_evidence": True}
    rows = [ROW, OTHER_PAGE, other, {**other, "passage": "fuel " * 400, "is_evidence": False}]
    tokenized = Rerank().tokenize(rows, RowTokenizer(tokenizer, 400))
    assert (len(tokenized.rows), tokenized.num_without_advantage, tokenized.num_too_long) == (1, 1, 1)


@pytest.mark.seconds
def test_the_prompt_that_is_learned_is_the_one_that_ranking_asks() -> None:
    reranker: Any = load_reranker(RerankConfig(model=str(embedded_model_dir())))
    tokenizer = reranker.writer.tokenizer
    [question] = Rerank().tokenize([ROW, OTHER_PAGE], RowTokenizer(tokenizer, 400)).rows
    asked = reranker.writer.write(ROW["question"], [ROW["passage"], OTHER_PAGE["passage"]]).written
    assert [page["input_ids"][:-1] for page in question["pages"]] == asked
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
    (tmp_path / "drag_ray_reranker.json").write_text('{"page_chars": -1}')
    with pytest.raises(DataError, match=r"drag_ray_reranker\.json: not the file that finetune writes into a model's folder"):
        read_note(tmp_path)


def test_a_row_of_another_format_or_a_template_that_cannot_hold_the_question_is_refused(tokenizer: Any) -> None:
    with pytest.raises(DataError, match=r"row 1: a judged passage lacks is_evidence\. Run: python jobs/format\.py"):
        Rerank().tokenize([{"question": "q", "passage": "p"}], RowTokenizer(tokenizer, 400))
    closed = copy.deepcopy(tokenizer)
    closed.chat_template = "{{ raise_exception('no system message') }}"
    with pytest.raises(TrainError, match=r"does not take a system message and a question \(no system message\)"):
        Rerank().tokenize([ROW, OTHER_PAGE], RowTokenizer(closed, 400))


@pytest.mark.parametrize(("loss", "doubted"), [(1.6, True), (1.1, False), (None, False)])
def test_a_reranker_that_might_as_well_draw_the_order_is_doubted(loss: float | None, doubted: bool) -> None:
    doubt = Rerank().diagnose({"eval_loss_after": loss}, [ROW, *[OTHER_PAGE] * 4])
    assert bool(doubt) == doubted
    if doubted:
        assert "validation rows is 1.600, and 1.609 if it drew the order of pages" in doubt


def test_without_validation_questions_that_can_be_put_in_order_nothing_divides_by_zero() -> None:
    for rows in ([], [ROW]):
        assert Rerank().diagnose({"eval_loss_after": 0.3}, rows) == ""


PASSAGES = {
    "How fast may the rotor turn?": ["340 rpm is its limit.", "Fuel."],
    "Who pays?": ["Nobody.", "The buyer pays it all.", "Oil."],
}


def test_the_loss_is_the_likelihood_of_drawing_the_evidence_and_finite_for_who_cannot_tell_pages_apart() -> None:
    scores = torch.tensor([1.0, 0.5, -1.0, 2.0, 0.0, 3.0])
    is_evidence = torch.tensor([True, False, False, False, True, True])
    question = torch.tensor([0, 0, 0, 1, 1, 1])
    first = math.exp(1) / (math.exp(1) + math.exp(0.5) + math.exp(-1))
    second, third = 1 / (1 + math.exp(2)), math.exp(3) / (math.exp(3) + math.exp(2))  # evidence does not compete with evidence
    expected = -(math.log(first) + (math.log(second) + math.log(third)) / 2) / 2
    assert compute_order_loss(scores, is_evidence, question).item() == pytest.approx(expected, abs=1e-6)
    scores = torch.zeros(7, requires_grad=True)
    loss = compute_order_loss(scores, torch.tensor([1, 0, 0, 0, 0, 1, 0]), torch.tensor([0, 0, 0, 0, 0, 1, 1]))
    assert loss.item() == pytest.approx((math.log(5) + math.log(2)) / 2)
    loss.backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert (scores.grad < 0).tolist() == [True, False, False, False, False, True, False]


@pytest.mark.seconds
def test_scores_are_those_of_ranking_whatever_else_a_batch_holds() -> None:
    reranker: Any = load_reranker(RerankConfig(model=str(embedded_model_dir()), dtype="float32"))
    tokenizer, model = reranker.writer.tokenizer, reranker._model
    rows = [
        {"question": question, "passage": passage, "is_evidence": place == 1}
        for question, passages in PASSAGES.items()
        for place, passage in enumerate(passages)
    ]
    questions = Rerank().tokenize(rows, RowTokenizer(tokenizer, 400)).rows
    inputs = PagesCollator(tokenizer.pad_token_id)(questions)
    assert inputs["question"].tolist() == [0, 0, 1, 1, 1]
    trainer: Any = PageOrderTrainer.__new__(PageOrderTrainer)
    trainer._answers = type(reranker.writer.answers)(0, 1)  # this model's head has these two tokens alone
    with torch.no_grad():
        loss = trainer.compute_loss(model, inputs)
    scores = [reranker.score(question, [passage])[0] for question, passages in PASSAGES.items() for passage in passages]
    expected = compute_order_loss(torch.tensor(scores), inputs["labels"], inputs["question"])
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-4)
