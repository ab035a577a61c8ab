"""Drafts: questions as the model wrote them, with what became of each, and the counts and tables that are made of them; and the
filters that ask no model, by their words and by their likeness to one another."""

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from pydantic import TypeAdapter

from drag_ray.corpus import question_images
from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.near_duplicates import NearDuplicates, find_similar, hash_runs, list_words
from drag_ray.corpus.questions import hash_text
from drag_ray.corpus.split import split_questions
from drag_ray.errors import DataError
from drag_ray.questions.config import ROWS_NAME, KindName, QuestionsConfig, RewritingName
from drag_ray.questions.prompts import list_shown_questions
from drag_ray.storage.json_text import parse_json
from drag_ray.types import Evidence, Question

Reason = Literal[
    "",
    "budget",
    "failed",
    "unreadable",
    "self_reference",
    "other_language",
    "copied",
    "too_easy",
    "not_found",
    "unanswerable",
    "one_page",
    "known",
    "ambiguous",
    "one_search",
    "near_duplicate",
    "same_meaning",
    "difficulty",
]
"""Why a draft is left out; empty for none. An endpoint's budget was spent before it was written, the engine could not answer, or
the reply is no question; then the filters, in their order, and the shares of ranks."""
NOT_WRITTEN: tuple[Reason, ...] = ("budget", "failed")
"""Drafts that a stage which goes on has written again."""
OF_MANY: tuple[Reason, ...] = ("near_duplicate", "same_meaning", "difficulty")
"""What says nothing of a question by itself, without the others."""


@dataclass(frozen=True, slots=True)
class Rewriting:
    """A rewriting of a question.

    Attributes:
        name: what gave way.
        question: the wording before or, where that stays, the one that was refused.
        refused: why it was: the answer stands on the image, the reply cannot be read, the name was not replaced, or a filter's
            reason. Empty where it was not.
    """

    kind: RewritingName
    name: str = ""
    question: str = ""
    refused: Reason | Literal["answer_on_image", "not_replaced"] = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A written question.

    Attributes:
        detail: what it was left out for: the error, the reply that cannot be read, or the answer that the model gave.
        other_pages: those after the first of a question over several, and those that answer one over a single page too.
        links: of each of several pages with the one before it: a hyperlink (see `HYPERLINK`), names and words that both have.
        image: the picture of the first page, with which the question is asked; empty for none.
        style: the one of `questions.styles` that was drawn.
        rank: of the page, searched with the question; 0 where it was not found or not searched.
        calls: requests about it.
        prompt_tokens: of all of these.
        seconds: since the draft before it was there.
    """

    id: str
    kind: KindName
    file: str
    page_number: int
    question: str = ""
    answer: str = ""
    reason: Reason = ""
    detail: str = ""
    other_pages: tuple[Evidence, ...] = ()
    links: tuple[tuple[str, ...], ...] = ()
    image: str = ""
    rewritings: tuple[Rewriting, ...] = ()
    style: str = ""
    rank: int = 0
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0

    def to_question(self) -> Question:
        """The question with its evidence, without a split. The page that an image shows need not be found."""
        category, images = f"written_{self.kind}", (self.image,) if self.image else ()
        evidence = self.other_pages if images else self.places
        return Question(self.id, self.question, evidence, (self.answer,), category, images=images)

    @property
    def places(self) -> tuple[Evidence, ...]:
        """Its pages, in the order of the walk over them where there are several."""
        return Evidence(self.file, self.page_number), *self.other_pages


DRAFT = TypeAdapter(Draft)
Embed = Callable[[list[str]], np.ndarray]
FindPairs = Callable[[list[str]], Iterable[tuple[int, int]]]
"""Places of each two questions that are alike, the smaller first; ordered by the larger."""
_logger = logging.getLogger(__name__)


def drop_repeated(drafts: Sequence[Draft], config: QuestionsConfig, embed: Embed | None = None) -> list[Draft]:
    """The drafts, with a reason for those that nearly duplicate an earlier one which is kept, or an example; and, with a function
    for vectors of unit length, for those that mean nearly the same."""
    if "near_duplicate" in config.filters:
        drafts = _drop(drafts, config, "near_duplicate", _find_alike)
    if embed:
        drafts = _drop(drafts, config, "same_meaning", lambda texts: _find_close(embed(texts), config.max_cosine))
    return list(drafts)


def _drop(drafts: Sequence[Draft], config: QuestionsConfig, reason: Reason, find_pairs: FindPairs) -> list[Draft]:
    examples = (*config.examples, *list_shown_questions())
    asked = defaultdict[str, list[int]](list)  # by their pictures: of two, the same words ask something else
    for place, draft in enumerate(drafts):
        if not draft.reason:
            asked[draft.image].append(place)
    repeated = set[int]()
    for image, places in asked.items():
        found = find_repeated([drafts[place].question for place in places], () if image else examples, find_pairs)
        repeated.update(places[number] for number in found)
    return [replace(draft, reason=reason) if place in repeated else draft for place, draft in enumerate(drafts)]


def mix_difficulty(drafts: Sequence[Draft], config: QuestionsConfig, seed: int) -> list[Draft]:
    """The drafts, with a reason for kept ones that exceed the shares of `difficulty`, or are at a rank that it does not name. As
    many stay as these shares allow; a band that has no question leaves them to the others."""
    if not config.difficulty:
        return list(drafts)
    kept = sorted((draft for draft in drafts if not draft.reason), key=lambda draft: hash_text(draft.id, seed))
    banded = [[draft.id for draft in kept if low <= draft.rank <= high] for low, high in config.bands]
    shares = list(zip(banded, config.difficulty.items(), strict=True))
    for _, (band, _) in (one for one in shares if not one[0]):
        _logger.warning(f"questions: no question is left at the ranks {band} (questions.difficulty); the others share alone")
    size = min((len(ids) / share for ids, (_, share) in shares if ids), default=0.0)
    stays = {id for ids, (_, share) in shares for id in ids[: round(size * share)]}
    return [draft if draft.reason or draft.id in stays else replace(draft, reason="difficulty") for draft in drafts]


def split_drafts(drafts: Sequence[Draft], near_duplicates: NearDuplicates, corpus: CorpusConfig) -> list[Question]:
    """Their questions with splits, by document; by page where no document is small enough for the test.

    Args:
        near_duplicates: among all their pages: that of an image is on one side too, though it is no evidence.
    """
    tied = [replace(draft.to_question(), evidence=draft.places) for draft in drafts]
    split, _ = split_questions(tied, corpus.test_fraction, corpus.seed, "document", near_duplicates)
    if corpus.test_fraction and tied and not any(question.split == "test" for question in split):
        split, _ = split_questions(tied, corpus.test_fraction, corpus.seed, "question", near_duplicates)
        _logger.info("questions: no document has few enough of them for the test, so they are split by page")
    splits = {question.id: question.split for question in split}
    return [replace(draft.to_question(), split=splits[draft.id]) for draft in drafts]


def count_drafts(drafts: Sequence[Draft]) -> dict[str, float]:
    """Counts: drafts, those left out for each reason of a filter, questions kept, those of each kind, how many were rewritten and
    how many stayed as they were, other pages that answer them too, and what one of them has cost."""
    reasons = Counter(draft.reason for draft in drafts)
    kept = [draft for draft in drafts if not draft.reason]
    rewritten = Counter(f"{'not_' if one.refused else ''}{one.kind}" for draft in kept for one in draft.rewritings)
    num_kept = len(kept)
    calls, read, written, seconds = (
        sum(getattr(draft, name) for draft in drafts) for name in ("calls", "prompt_tokens", "completion_tokens", "seconds")
    )
    costs = {"calls": calls, "tokens": read + written, "seconds": seconds}
    return {
        "drafts": len(drafts),
        **{f"left_out_{reason}": reasons[reason] for reason in get_args(Reason) if reason and reason != "budget"},
        "questions": num_kept,
        **{f"questions_{kind}": number for kind, number in sorted(Counter(draft.kind for draft in kept).items())},
        **{count: rewritten[count] for kind in get_args(RewritingName) for count in (kind, f"not_{kind}")},
        "other_pages": sum(len(draft.other_pages) for draft in kept if not draft.links),
        "prompt_tokens": read,
        "completion_tokens": written,
        **({f"{name}_per_question": number / num_kept for name, number in costs.items()} if num_kept else {}),
    }


def build_rows(questions: Iterable[Question], drafts: Mapping[str, Draft]) -> list[dict[str, Any]]:
    """The rows of `questions.jsonl`, as `corpus.questions` reads them, and of the drafts, by id, what it does not read: the
    style, the path of a question over several pages, and the wording before a rewriting."""
    return [_build_row(question, drafts[question.id]) for question in questions]


def read_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """The rows that `build_rows` has made, by id. Raises DataError: the file is not there."""
    path = folder / ROWS_NAME
    if not path.is_file():
        raise DataError(f"{path}: is not there, though the stage has finished. `python jobs/questions.py` makes it again.")
    return {str(row["id"]): row for row in map(parse_json, path.read_bytes().splitlines())}


def _build_row(question: Question, draft: Draft) -> dict[str, Any]:
    path = [asdict(page) | {"links": links} for page, links in zip(draft.places, ((), *draft.links), strict=False)]
    plain = [rewriting.question for rewriting in draft.rewritings if not rewriting.refused]
    return {
        "id": question.id,
        "question": question.question,
        "answer": question.answers[0],
        "evidence": [asdict(page) for page in question.evidence],
        "category": question.category,
        "split": question.split,
        **({"images": [f"{question_images.DIR_NAME}/{key}" for key in question.images]} if question.images else {}),
        **({"style": draft.style} if draft.style else {}),
        **({"path": path} if draft.links else {}),
        **({"plain_question": plain[0]} if plain else {}),
    }


_NOUN = r"(?:pages?|documents?|passages?|texts?|articles?|excerpts?|sections?|paragraphs?|chapters?|tables?|figures?|snippets?)"
_SELF_REFERENCE = re.compile(
    rf"\b(?:(?:this|these)\s+(?:functions?|methods?|commands?|classes|class|examples?|code)"
    rf"|(?:this|these|the\s+(?:above|given|following|provided|preceding|present|attached))\s+{_NOUN}"
    rf"|(?:according\s+to|in|on|by|of|from)\s+the\s+{_NOUN}"
    rf"|the\s+{_NOUN}\s+(?:say|explain|describe|mention|state|discuss|show|list|contain|provide)s?"
    r"|(?:stated|mentioned|described|shown|listed|given|provided)\s+(?:above|below|here)"
    r"|dies(?:e[mnrs]?)?\s+(?:seite|dokuments?|text(?:es)?|abschnitts?|tabelle)"
    r"|cet(?:te)?\s+(?:page|article|extrait)|ce\s+(?:document|passage|texte|tableau)"
    r"|est[ea]\s+(?:página|documento|texto|pasaje|artículo|tabla))\b",
    re.IGNORECASE,
)
_COPIED_WORDS = 8
_RUN_WORDS = 2
"""Questions are too short for the shingles of pages."""


def refers_to_page(question: str) -> bool:
    """True if a question speaks of the page that it was written from, which whoever asks has not seen. English, German, French
    and Spanish words are looked for."""
    return _SELF_REFERENCE.search(question) is not None


def copies_run(question: str, page: str) -> bool:
    """True if more than eight words in a row are the page's own."""
    length = _COPIED_WORDS + 1
    asked, written = list_words(question), list_words(page)
    runs = {tuple(written[start : start + length]) for start in range(len(written) - _COPIED_WORDS)}
    return any(tuple(asked[start : start + length]) in runs for start in range(len(asked) - _COPIED_WORDS))


def _find_alike(texts: list[str]) -> Iterable[tuple[int, int]]:
    """Pairs with a Jaccard similarity of their pairs of words of at least 0.8 (see `near_duplicates`)."""
    words = map(list_words, texts)
    return find_similar([hash_runs(own, min(_RUN_WORDS, len(own))) for own in words])


def _find_close(vectors: np.ndarray, limit: float) -> Iterator[tuple[int, int]]:
    """Pairs whose vectors, (n, dimensions), have a cosine of so much or more."""
    for place, vector in enumerate(vectors):
        yield from ((int(other), place) for other in np.flatnonzero(vectors[:place] @ vector >= limit))


def find_repeated(questions: Sequence[str], examples: Sequence[str] = (), find_pairs: FindPairs = _find_alike) -> set[int]:
    """The places of the questions that are like one of the examples, or like an earlier question that stays.

    They are if they make a pair and have the same numbers: a question about another year is another question.

    Args:
        questions: in the order in which they are kept, each with a word or more.
        examples: questions of users, which a model may copy.
        find_pairs: compares them.
    """
    asked = [*examples, *questions]
    numbers = [sorted(word for word in list_words(text) if any(map(str.isdigit, word))) for text in asked]
    repeated = set[int]()
    for first, second in find_pairs(asked):
        if first not in repeated and numbers[first] == numbers[second]:
            repeated.add(second)
    return {place - len(examples) for place in repeated if place >= len(examples)}
