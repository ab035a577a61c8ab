"""The loss of a reranker's training is the one that its docstring defines, of scores that are those of ranking."""

import math
from typing import Any

import pytest
import torch

from drag_ray.engine.encoders.reranker import load_reranker
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.finetune.methods.rerank import Rerank
from drag_ray.finetune.tokenized_rows import RowTokenizer
from drag_ray.finetune.trainers.page_order import PageOrderTrainer, PagesCollator, compute_order_loss
from drag_ray.search.config import RerankConfig

PASSAGES = {
    "How fast may the rotor turn?": ["340 rpm is its limit.", "Fuel."],
    "Who pays?": ["Nobody.", "The buyer pays it all.", "Oil."],
}


def test_the_loss_is_the_likelihood_of_drawing_the_evidence_from_it_and_the_others_of_its_question() -> None:
    scores = torch.tensor([1.0, 0.5, -1.0, 2.0, 0.0, 3.0])
    is_evidence = torch.tensor([True, False, False, False, True, True])
    question = torch.tensor([0, 0, 0, 1, 1, 1])
    first = math.exp(1) / (math.exp(1) + math.exp(0.5) + math.exp(-1))
    second, third = 1 / (1 + math.exp(2)), math.exp(3) / (math.exp(3) + math.exp(2))  # evidence does not compete with evidence
    expected = -(math.log(first) + (math.log(second) + math.log(third)) / 2) / 2
    assert compute_order_loss(scores, is_evidence, question).item() == pytest.approx(expected, abs=1e-6)


def test_who_cannot_tell_pages_apart_has_the_loss_of_a_draw_and_a_finite_gradient() -> None:
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
