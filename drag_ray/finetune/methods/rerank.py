"""A reranker: a model that reads a question with a page, and says whether the page answers it.

Pages are put in order by the log-odds of `yes` against `no` (Nogueira et al., 2020, https://arxiv.org/abs/2003.06713). It learns
from all pages of a question at once, of which the evidence is to come first (Gao et al., 2021,
https://arxiv.org/abs/2101.08751).
"""

import math
from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

from pydantic import Field

from drag_ray.engine.conversation import Row, take_columns
from drag_ray.engine.models.relevance import RerankerNote, find_answers, write_note, write_prompt
from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.errors import TrainError
from drag_ray.finetune.methods.method import Method, TrainerOptions
from drag_ray.finetune.tokenized_rows import PAGES, RowTokenizer, TokenizedConversation, TokenizedRows, group_rows
from drag_ray.search.config import RELEVANCE_INSTRUCTION

if TYPE_CHECKING:
    from transformers import Trainer

    from drag_ray.finetune.images import TrainingImages

_LEARNED = 0.9
"""of the loss of who cannot tell pages apart"""


class JudgedPassage(TypedDict):
    """A question with a part of a page, and whether that page is evidence."""

    question: str
    passage: str
    is_evidence: bool


class TokenizedPassage(TokenizedConversation):
    """The prompt with the answer, which question it is of, and whether the answer is yes."""

    question: str
    is_evidence: bool


class Rerank(Method):
    """The evidence of a question comes before its other pages."""

    row_types: ClassVar[Mapping[str, type[Row]]] = {"relevance": JudgedPassage}
    purpose: ClassVar[str] = "tells pages that answer a question from others"
    is_asked_as_agent: ClassVar[bool] = False
    why_nothing_is_learned: ClassVar[str] = (
        "no question has both evidence and another page. Raise format.relevance_pages or format.relevance_depth."
    )

    instruction: str = Field(default=RELEVANCE_INSTRUCTION, min_length=1)
    """what the model is told of its task, in training and, by a note beside the adapter, where it ranks"""

    def tokenize(self, rows: Iterable[Row], tokenizer: RowTokenizer) -> TokenizedRows:
        """Questions {pages, is_evidence, image_keys}: a page is the prompt that ranking asks, with the first token of the answer.

        Questions without evidence, or with nothing else, teach no order; their pages are left out and counted.

        Raises what `tokenize_rows` does, and TrainError where the chat template cannot hold what is asked.
        """
        answers = find_answers(tokenizer.tokenizer)
        try:
            write_prompt(tokenizer.tokenizer, "", "", self.instruction)
        except Exception as error:  # a template is a program, which raises what it likes
            raise TrainError(
                f"the chat template does not take a system message and a question ({str(error)[:200]}), so the model can be no "
                "reranker. Set engine.model to another one."
            ) from None

        def tokenize_row(row: Row) -> TokenizedPassage:
            judged = take_columns(row, JudgedPassage, "a judged passage")
            prompt = write_prompt(tokenizer.tokenizer, judged["question"], judged["passage"], self.instruction)
            asked: list[int] = tokenizer.tokenizer(prompt, add_special_tokens=False)["input_ids"]
            answer = answers.yes if judged["is_evidence"] else answers.no
            return {
                "input_ids": [*asked, answer],
                "labels": [*[IGNORED_LABEL] * len(asked), answer],
                "image_keys": [],
                "question": _name_question(row),
                "is_evidence": judged["is_evidence"],
            }

        read = tokenizer.tokenize_rows(rows, tokenize_row)
        tokenized = TokenizedRows(num_too_long=read.num_too_long)
        for pages in group_rows(read.rows, itemgetter("question")):
            kinds = [page["is_evidence"] for page in pages]
            if len(set(kinds)) == 1:
                tokenized.num_without_advantage += len(pages)
                continue
            columns = [{name: page[name] for name in ("input_ids", "labels")} for page in pages]
            name = f"{pages[0]['name']} to {pages[-1]['name']}"
            tokenized.rows.append({"name": name, PAGES: columns, "is_evidence": kinds, "image_keys": []})
        return tokenized

    def build_trainer(self, options: TrainerOptions, images: "TrainingImages | None") -> "Trainer":
        """`PageOrderTrainer`."""
        from drag_ray.finetune.trainers.page_order import PageOrderTrainer, PagesCollator

        tokenizer = options["processing_class"]
        answers = find_answers(tokenizer)
        return PageOrderTrainer(**options, data_collator=PagesCollator(tokenizer.pad_token_id), answers=answers)

    def diagnose(self, counts: Mapping[str, Any], rows: Iterable[Row]) -> str:
        """That it tells pages apart hardly better than who draws their order."""
        loss, questions = counts["eval_loss_after"], _list_questions(rows)
        if loss is None or not questions:
            return ""
        # Who cannot tell them apart gives the evidence the same share as each of the others.
        of_drawing = sum(math.log(1 + kinds.count(False)) for kinds in questions) / len(questions)
        if loss < _LEARNED * of_drawing:
            return ""
        return (
            f"the reranker has hardly learned to tell pages apart: its loss on validation rows is {loss:.3f}, and "
            f"{of_drawing:.3f} if it drew the order of pages. Its order may be worse than that of the search: look at `rerank` "
            "in an evaluation first. More questions, more epochs or a larger model may help."
        )

    def write_note(self, adapter_dir: Path, row_options: Mapping[str, Any], index_fingerprint: str) -> None:
        """That the adapter is a reranker, what it is told, how much of a page it has read, and of which index."""
        page_chars = row_options.get("relevance_chars", 0)
        note = RerankerNote(instruction=self.instruction, page_chars=page_chars, index_fingerprint=index_fingerprint)
        write_note(adapter_dir, note)


def _list_questions(rows: Iterable[Row]) -> list[list[bool]]:
    """Of each question that has both evidence and other pages, which of its pages are evidence."""
    judged = [take_columns(row, JudgedPassage, "a judged passage") for row in rows]
    questions = [[page["is_evidence"] for page in pages] for pages in group_rows(judged, _name_question)]
    return [kinds for kinds in questions if len(set(kinds)) == 2]


def _name_question(row: Mapping[str, Any]) -> str:
    """The name that the pages of a question share."""
    return str(row.get("question_id", row["question"]))
