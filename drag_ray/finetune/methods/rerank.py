"""A reranker: a model that reads a question with a page, and says whether the page answers it.

Pages are put in order by the log-odds of `yes` against `no` (Nogueira et al., 2020, https://arxiv.org/abs/2003.06713). It learns
from all pages of a question at once, of which the evidence is to come first (Gao et al., 2021,
https://arxiv.org/abs/2101.08751).
"""

import math
from collections.abc import Iterable, Mapping
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from drag_ray.engine.conversation import Row
from drag_ray.engine.models.relevance import RerankerNote, find_answers, write_note, write_prompt
from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.errors import TrainError
from drag_ray.finetune.methods.judged_pages import NOTHING_TO_COMPARE, JudgedPassage, diagnose_order, name_question, read_passage
from drag_ray.finetune.methods.method import AdapterMethod, TrainerOptions
from drag_ray.finetune.rows.tokenized_rows import PAGES, RowTokenizer, TokenizedConversation, TokenizedRows, group_rows
from drag_ray.search.config import RELEVANCE_INSTRUCTION

if TYPE_CHECKING:
    from transformers import Trainer

    from drag_ray.finetune.rows.images import TrainingImages


class TokenizedPassage(TokenizedConversation):
    """The prompt with the answer, which question it is of, and whether the answer is yes."""

    question: str
    is_evidence: bool


class Rerank(AdapterMethod):
    """The evidence of a question comes before its other pages."""

    row_types: ClassVar[Mapping[str, type[Row]]] = {"relevance": JudgedPassage}
    trains_policy: ClassVar[bool] = False
    purpose: ClassVar[str] = "tells pages that answer a question from others"
    is_asked_as_agent: ClassVar[bool] = False
    why_nothing_is_learned: ClassVar[str] = NOTHING_TO_COMPARE

    instruction: str = Field(default=RELEVANCE_INSTRUCTION, min_length=1)
    """task description in the model's prompt, in training and, by a file beside the adapter, in use"""

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
                f"the chat template does not take a system message and a question ({str(error)[:200]}), so the model cannot be "
                "a reranker. Set engine.model to another one."
            ) from None

        def tokenize_row(row: Row) -> TokenizedPassage:
            judged = read_passage(row)
            prompt = write_prompt(tokenizer.tokenizer, judged["question"], judged["passage"], self.instruction)
            asked: list[int] = tokenizer.tokenizer(prompt, add_special_tokens=False)["input_ids"]
            is_evidence = bool(judged["is_evidence"])  # of a question that nobody has labelled, all are alike
            answer = answers.yes if is_evidence else answers.no
            return {
                "input_ids": [*asked, answer],
                "labels": [*[IGNORED_LABEL] * len(asked), answer],
                "image_keys": [],
                "question": name_question(row),
                "is_evidence": is_evidence,
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
        questions = [[read_passage(row)["is_evidence"] for row in pages] for pages in group_rows(rows, name_question)]
        # Who cannot tell them apart gives the evidence the same share as each of the others.
        drawn = [math.log(1 + kinds.count(False)) for kinds in questions if len(set(kinds)) == 2]
        return diagnose_order(counts["eval_loss_after"], drawn, [0.0] * len(drawn))

    def write_note(self, folder: Path, row_options: Mapping[str, Any], index_fingerprint: str) -> None:
        """That the adapter is a reranker, what it is told, how much of a page it has read, and of which index."""
        page_chars = row_options.get("relevance_chars", 0)
        note = RerankerNote(instruction=self.instruction, page_chars=page_chars, index_fingerprint=index_fingerprint)
        write_note(folder, note)
