"""The training of a reranker: of all pages of a question its evidence is to come first."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from trl.trainer.sft_trainer import SFTTrainer

from drag_ray.engine.encoders.reranker import predict_next
from drag_ray.engine.models.relevance import Answers
from drag_ray.finetune.rows.tokenized_rows import PAGES
from drag_ray.finetune.trainers.adapter_trainer import RowMeanTrainer


class PagesCollator:
    """Makes a batch of rows {pages, is_evidence}: a line for each page of each question."""

    def __init__(self, pad_token_id: int) -> None:
        self._pad_token_id = pad_token_id

    def __call__(self, rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """`input_ids` and `attention_mask` of shape (pages, tokens), of the prompts alone, each of which ends in the last place;
        `labels`, whether a page is evidence, and `question`, the place of its question in the batch, both of shape (pages,)."""
        prompts = [torch.tensor(page["input_ids"][:-1]) for row in rows for page in row[PAGES]]
        return {
            "input_ids": pad_sequence(prompts, True, self._pad_token_id, "left"),  # of the batch first
            "attention_mask": pad_sequence([torch.ones_like(prompt) for prompt in prompts], True, 0, "left"),
            "labels": torch.tensor([kind for row in rows for kind in row["is_evidence"]]),
            "question": torch.tensor([place for place, row in enumerate(rows) for _ in row[PAGES]]),
        }


class PageOrderTrainer(RowMeanTrainer, SFTTrainer):
    """A trainer on batches of `PagesCollator`. `answers`: the tokens whose log-odds put pages in order."""

    def __init__(self, *args: Any, answers: Answers, **options: Any) -> None:
        super().__init__(*args, **options)
        self._answers = answers

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        """The loss of a batch. `return_outputs` is never asked for: only losses are evaluated."""
        logits = predict_next(model, {name: inputs[name] for name in ("input_ids", "attention_mask")}).float()
        scores = logits[:, self._answers.yes] - logits[:, self._answers.no]
        return compute_order_loss(scores, inputs["labels"], inputs["question"])


def compute_order_loss(scores: torch.Tensor, is_evidence: torch.Tensor, question: torch.Tensor) -> torch.Tensor:
    """The loss of an order of pages: the evidence's negative log-likelihood when one page is drawn from it and the other pages
    of its question by exp(score), as a mean over the evidence of a question, and of that over the questions. Evidence does not
    compete with evidence.

    Args:
        scores: of each page, of shape (pages,).
        is_evidence: of the same shape; each question has some, and other pages too.
        question: the number of each page's question, from 0 without a gap, of the same shape.
    """
    evidence, others = is_evidence.bool(), ~is_evidence.bool()
    competes = (question[evidence].unsqueeze(1) == question.unsqueeze(0)) & others
    against = scores.unsqueeze(0).masked_fill(~competes, -torch.inf)
    own = scores[evidence].unsqueeze(1)
    losses = torch.cat([own, against], dim=1).logsumexp(dim=1) - own.squeeze(1)
    num_evidence = question[evidence].bincount()
    return (losses / num_evidence[question[evidence]]).sum() / len(num_evidence)
