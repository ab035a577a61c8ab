"""Training rows: read from files, and made token ids and labels, with those of their page images; too long ones are set aside.

The tokens of a page image take the place of the one that marks it once the text is tokenized, so that they are never learned,
whatever the mask.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from drag_ray.engine.conversation import Conversation, Row
from drag_ray.engine.generate import compute_prompt_digest
from drag_ray.engine.models.tokens import (
    IGNORED_LABEL,
    LabelledTokens,
    Mask,
    tokenize_conversation,
    tokenize_prompt,
    tokenize_step,
)
from drag_ray.errors import DataError, TrainError
from drag_ray.storage.json_text import parse_json
from drag_ray.tools.search import ANSWER

if TYPE_CHECKING:
    from drag_ray.finetune.rows.images import TrainingImages


def read_rows(path: Path, limit: int = 0, seed: int = 0) -> Iterator[Row]:
    """The rows of a file, one after the other. Raises DataError where there is no such file, or it holds something else. It does
    not name the file.

    Args:
        path: a row a line, in JSON.
        limit: of how many; 0 takes all. Of more those of drawn questions are taken, all of a question but for the last: a file
            is in the order of its questions, whose first ones may all be of one kind.
        seed: of the draw.
    """
    drawn = _draw_places(path, limit, seed) if limit else None
    for place, row in enumerate(_parse_lines(path)):
        if drawn is None or place in drawn:
            yield row


def _draw_places(path: Path, limit: int, seed: int) -> set[int]:
    """Places of rows in the file; a row that names no question is one by itself."""
    by_question: dict[object, list[int]] = defaultdict(list)
    for place, row in enumerate(_parse_lines(path)):
        by_question[row.get("question_id", place) if isinstance(row, dict) else place].append(place)
    questions = list(by_question)
    random.Random(seed).shuffle(questions)
    return set([place for question in questions for place in by_question[question]][:limit])


def _parse_lines(path: Path) -> Iterator[Row]:
    try:
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield parse_json(line)
    except FileNotFoundError:
        raise DataError("no such file. Run: python jobs/format.py") from None
    except ValueError as error:
        raise DataError(f"not one JSON object a line ({error}). Run: python jobs/format.py") from None


_Row = TypeVar("_Row")

PAIR_SIDES = ("chosen", "rejected")
"""The two replies of a preference pair, in the order that TRL takes them in."""

PAGES = "pages"
"""The column of a question's pages, where these are compared with each other."""


class TokenizedConversation(LabelledTokens):
    """A conversation with the tokens of its page images, and the keys of these in their order."""

    image_keys: list[str]


class TokenizedPair(TypedDict):
    """Two conversations that differ in their reply, and the page images that both show."""

    chosen: LabelledTokens
    rejected: LabelledTokens
    image_keys: list[str]


class LeftOut(Enum):
    """The reason why nothing is learned from a row."""

    WITHOUT_ADVANTAGE = auto()
    """It is no better than the others of its question, and no worse."""
    OFF_POLICY = auto()
    """Its reply has no tokens that a policy drew."""


@dataclass
class TokenizedRows:
    """Rows as a method has tokenized them, and how many are left out.

    `rows` are a `TokenizedConversation` or a `TokenizedPair` each, with a `name` and what else the method needs: plain
    dictionaries, as `datasets` takes them. `input_ids` and `labels` are of equal length. The name is what a row is called in
    messages: its line, and its trajectory where it has one.
    """

    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    num_too_long: int = 0
    num_without_advantage: int = 0
    num_off_policy: int = 0
    num_distilled: int = 0

    @property
    def num_trained_tokens(self) -> int:
        """Tokens that are learned, of both sides of a pair."""
        sequences = (sequence for row in self.rows for sequence in list_sequences(row))
        return sum(label != IGNORED_LABEL for sequence in sequences for label in sequence["labels"])


class AllTooLongError(DataError):
    """None of some rows is short enough to be learned."""


@dataclass(frozen=True)
class RowTokenizer:
    """Tokenizes the rows of one training.

    Args:
        tokenizer: of the model, with its chat template.
        max_length: tokens of the longest row, those of its images included.
        images: what the model makes of page images; None if it takes none.
        compares_prompts: whether rows were written by an engine with this very tokenizer, so that the digests of their prompts
            have to be those of what is trained on. Drawn tokens are always compared.
    """

    tokenizer: Any
    max_length: int
    images: "TrainingImages | None" = None
    compares_prompts: bool = True

    def tokenize(self, conversation: Conversation, mask: Mask = "assistant") -> TokenizedConversation:
        """A conversation whose learned replies are tokenized anew. Raises DataError where nothing of a reply is learned, a page
        image is missing or damaged, or the engine had another prompt, and TrainError where the chat template cannot be trained
        with, or the model or the run has no images."""
        tokens = tokenize_conversation(conversation, self.tokenizer, mask, ANSWER.name)
        tokenized = self._add_images(tokens, conversation)
        if conversation.prompt_digest and self.compares_prompts:
            prompt = tokenize_prompt(conversation, self.tokenizer)
            expanded = self._add_images({"input_ids": prompt, "labels": prompt}, conversation)["input_ids"]
            remedy = "collect again, or train all the same with --no-finetune.compare-prompts"
            _check_prompt(expanded, conversation, remedy)
        return tokenized

    def tokenize_drawn(self, conversation: Conversation, drawn: list[int]) -> TokenizedConversation:
        """A conversation whose reply has the tokens `drawn`, in which it was written.

        Raises what `tokenize` does, and DataError where these are not the reply's, or the prompt is another one.
        """
        step = self._add_images(tokenize_step(conversation, drawn, self.tokenizer), conversation)
        if conversation.prompt_digest:
            _check_prompt(step["input_ids"][: -len(drawn)], conversation, "or collect again")
        return step

    def tokenize_rows(self, rows: Iterable[Row], tokenize: Callable[[Row], Mapping[str, Any] | LeftOut]) -> TokenizedRows:
        """The tokenized rows. One of more than `max_length` tokens is set aside and counted, never cut. Raises DataError where a
        row cannot be learned (says which), or none is short enough; TrainError: what `tokenize` raises. `tokenize`: gives a
        `TokenizedConversation` or a `TokenizedPair`, with columns of its own perhaps; or why nothing is learned from the row,
        which is counted."""
        kept = TokenizedRows()
        for number, row in enumerate(rows, start=1):
            try:
                tokenized = tokenize(row)
            except DataError as error:
                raise DataError(f"row {name_row(row, number)}: {error}") from None
            if tokenized is LeftOut.WITHOUT_ADVANTAGE:
                kept.num_without_advantage += 1
            elif tokenized is LeftOut.OFF_POLICY:
                kept.num_off_policy += 1
            elif max(len(sequence["input_ids"]) for sequence in list_sequences(tokenized)) > self.max_length:
                kept.num_too_long += 1
            else:
                kept.rows.append({"name": name_row(row, number), **tokenized})
        if kept.num_too_long and not kept.rows:
            raise AllTooLongError(
                f"all {kept.num_too_long} rows have more than finetune.max_length = {self.max_length} tokens. "
                "Raise it, or collect with a smaller agent.top_k, fewer agent.page_chars or a low agent.image_searches."
            )
        return kept

    def _add_images(self, tokens: LabelledTokens, conversation: Conversation) -> TokenizedConversation:
        """The tokens of the page images in place of their marks."""
        keys = conversation.images
        if self.images:
            tokens = expand_images(tokens, self.images.mark_id, [self.images.find_tokens(key) for key in keys])
        elif keys:
            raise TrainError(
                "the training rows show page images, and engine.model takes none. Set engine.model to a vision-language "
                "model, or collect with agent.page_view text."
            )
        return {**tokens, "image_keys": keys}


def _check_prompt(prompt: Sequence[int], conversation: Conversation, remedy: str) -> None:
    """Refuse a prompt that is not, token by token and image by image, what the engine had."""
    images = conversation.images
    if compute_prompt_digest(prompt, images) != conversation.prompt_digest:
        raise DataError(
            f"the prompt of a reply becomes {len(prompt)} tokens with {len(images)} images, which are not those that the engine "
            "drew it from: tokenizer, chat template or image processor are not those of the collection (a template that tells "
            f"the date has another prompt every day). Set engine.model to the model that collected, as it was then, {remedy}."
        )


def name_row(row: Row, number: int) -> str:
    """The name of a row, counted from 1, in messages."""
    return f"{number} ({row['trajectory_id']})" if "trajectory_id" in row else str(number)


def group_rows(rows: Iterable[_Row], find_group: Callable[[_Row], str]) -> list[list[_Row]]:
    """The rows of each group together, as those of a prompt or of a question, in the order of the groups' first rows."""
    groups: dict[str, list[_Row]] = {}
    for row in rows:
        groups.setdefault(find_group(row), []).append(row)
    return list(groups.values())


def list_sequences(tokenized: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Both sides of a pair, or the pages of a question, or the row itself."""
    return [tokenized[side] for side in PAIR_SIDES if side in tokenized] or tokenized.get(PAGES) or [tokenized]


def expand_images(tokens: LabelledTokens, mark_id: int, images: Sequence[list[int]]) -> LabelledTokens:
    """Put the tokens of each image in place of its mark. They are not learned. Raises DataError where there are not as many marks
    as images."""
    num_marks = tokens["input_ids"].count(mark_id)
    if num_marks != len(images):
        raise DataError(
            f"a training row shows {len(images)} images, and the chat template marks {num_marks}. If one of its texts spells "
            "out the model's image token, leave the row out; otherwise this family of models is not supported."
        )
    waiting = iter(images)
    expanded = LabelledTokens(input_ids=[], labels=[])
    for token, label in zip(tokens["input_ids"], tokens["labels"], strict=True):
        inserted = next(waiting) if token == mark_id else [token]
        expanded["input_ids"] += inserted
        expanded["labels"] += [IGNORED_LABEL] * len(inserted) if token == mark_id else [label]
    return expanded
