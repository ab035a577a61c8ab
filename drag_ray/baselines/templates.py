"""Words for each kind of question, tried out on the training questions: what a careful person writes as query templates.

`neighbours` takes the words that are frequent in the pages of similar questions; here they are searched for, and those kept,
with their weights, that lift the evidence of the questions of a kind on average, by hill climbing on all cores. A word that helps
one question by chance does not help the others. No model is needed, and what comes out is short enough for a policy to learn it.
"""

import logging
import math
import multiprocessing
import os
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, Self

from drag_ray.agent.environment import compute_evidence_rank
from drag_ray.agent.scores import compute_utility
from drag_ray.baselines.baseline import BaselineContext, Sources, TermBaseline, WriteAdditions, build_query_reply
from drag_ray.baselines.neighbours import MAX_QUESTIONS, QUESTION_WEIGHT, NeighbourFeedback
from drag_ray.baselines.question_words import QuestionWords, choose_kind, find_kinds
from drag_ray.baselines.weights import expand_terms, vary_words, write_weights, write_words
from drag_ray.engine.generate import GenerateFn, Request
from drag_ray.search.processes import end_with_parent
from drag_ray.types import Question

if TYPE_CHECKING:
    from drag_ray.search.searcher import Searcher

_logger = logging.getLogger(__name__)

_LEAST_QUESTIONS = 30
"""Of a kind; a rarer one joins the most similar one with which it shares a third of its words."""
_NUM_TRIED = 100
"""Questions of a kind on which words are tried, at most `_TRIED` of them; as many others check the result."""
_TRIED = 2 / 3
_NUM_CANDIDATES = 24
"""Words that are tried, of those that distinguish the pages of a kind's questions."""
_NUM_WORDS = 8
"""Of a kind, at most."""
_MAX_WEIGHT = 3
_LEAST_GAIN = 0.003
"""Steps that gain less on average, where an evidence page is worth 1 at the first rank, are chance."""
_DEPTH = 10


@dataclass(frozen=True)
class Templates(TermBaseline):
    """Searches for the question and the words of its kind."""

    name = "templates"
    summary = "the question, expanded by the words that gain most, on average, for training questions put alike; no model writes"
    proposes = True
    draws = True

    words: QuestionWords = field(default_factory=lambda: QuestionWords([]))
    templates: Mapping[frozenset[str], Mapping[str, int]] = field(default_factory=dict)
    """the words of each kind with their weights; of the kind with most questions first"""

    @classmethod
    def prepare(cls, sources: Sources) -> Self:
        """With words that were tried out on the run's training questions, which takes a minute or two for thousands of them, and
        is done once in a pipeline."""
        from drag_ray.search.index import read_fingerprint

        index_dir = sources.index_dir / "search_index"
        questions = tuple(sources.draw_questions(MAX_QUESTIONS))
        return cls(*find_templates_once(questions, index_dir, read_fingerprint(index_dir), sources.seed))

    def build_reply(self, context: BaselineContext) -> GenerateFn:
        """Replies that search for the question and the words of its kind."""
        searcher = context.searcher

        def write(question: str) -> str:
            added = searcher.read_additions(write_words(self.find_template(question)))
            return write_weights(expand_terms(searcher.analyze(question), QUESTION_WEIGHT, added))

        return build_query_reply(write, context.agent)

    def build_additions(self, context: BaselineContext) -> WriteAdditions:
        """The words of the question's kind, varied (see `vary_words`)."""

        async def write(question: str, request: Request) -> str:
            return write_words(vary_words(self.find_template(question), random.Random(request.seed)))

        return write

    def find_template(self, question: str) -> Mapping[str, int]:
        """The words of a question's kind with their weights; none if it is of no kind, or nothing helps that."""
        kind = choose_kind(self.words.pick(question), list(self.templates))
        return self.templates[kind] if kind else {}


def climb(
    words: Sequence[str], score: Callable[[Mapping[str, int]], float], *, max_words: int, max_weight: int, least_gain: float
) -> dict[str, int]:
    """Words with weights, found by taking the best of all single steps until none is worth `least_gain`.

    A step adds a word with weight 1, or changes a word's weight by 1; one of weight 0 is left out. Of equal steps that with the
    earlier word is taken.

    Args:
        score: of some of them, at most `max_words`, with weights from 1 to `max_weight`.
        least_gain: in score, of a step.

    Returns:
        The weights of the words, those that were added first first; empty where no word is worth adding.
    """
    found: dict[str, int] = {}
    best = score(found)
    while True:
        steps = list(_list_steps(words, found, max_words, max_weight))
        scores = [score(step) for step in steps]
        highest = max(scores, default=best)
        if highest < best + least_gain:
            return found
        best, found = highest, steps[scores.index(highest)]


def _list_steps(words: Sequence[str], found: Mapping[str, int], max_words: int, max_weight: int) -> Iterator[dict[str, int]]:
    for word in words:
        weight = found.get(word, 0)
        if weight < max_weight and (weight or len(found) < max_words):
            yield {**found, word: weight + 1}
        if weight == 1:
            yield {other: count for other, count in found.items() if other != word}
        elif weight:
            yield {**found, word: weight - 1}


def find_words(
    index_dir: Path, tried: Sequence[Question], checked: Sequence[Question], candidates: Sequence[str]
) -> dict[str, int]:
    """The words that gain most on average, with their weights (see `climb`); none where they gain no more than a standard error
    on the questions that they were not found on.

    Args:
        index_dir: the index that holds the evidence.
        tried: questions that the words are found on.
        checked: others, on which what was found has to hold.
        candidates: words.
    """
    from drag_ray.search.searcher import Searcher

    searcher = Searcher(index_dir)
    found = climb(
        candidates,
        lambda words: mean(_compute_utilities(searcher, tried, words)),
        max_words=_NUM_WORDS,
        max_weight=_MAX_WEIGHT,
        least_gain=_LEAST_GAIN,
    )
    with_words, without = (_compute_utilities(searcher, checked, words) for words in (found, {}))
    gains = [gained - had for gained, had in zip(with_words, without, strict=True)]
    return found if mean(gains) > stdev(gains) / math.sqrt(len(gains)) else {}


def _compute_utilities(searcher: "Searcher", questions: Sequence[Question], words: Mapping[str, int]) -> list[float]:
    """The utility of each question's evidence page where it is found with these words."""
    addition = write_words(words)
    found = (searcher.search_expanded(one.question, addition, QUESTION_WEIGHT, _DEPTH) for one in questions)
    ranks = (compute_evidence_rank(tuple(hits), one.evidence) for one, hits in zip(questions, found, strict=True))
    return [compute_utility(rank, _DEPTH) for rank in ranks]


def find_templates(
    questions: Sequence[Question], words: QuestionWords, index_dir: Path, seed: int
) -> dict[frozenset[str], dict[str, int]]:
    """The words that gain most for each kind of some questions, with their weights; the kind of most questions first."""
    from drag_ray.search.searcher import Searcher

    kinds = find_kinds([words.pick(question.question) for question in questions], _LEAST_QUESTIONS)
    names = sorted(kinds, key=lambda kind: (-len(kinds[kind]), sorted(kind)))
    feedback = NeighbourFeedback(tuple(questions), Searcher(index_dir))
    random_numbers = random.Random(seed)
    trials: list[tuple[Any, ...]] = []
    for name in names:
        members = [questions[position] for position in kinds[name]]
        random_numbers.shuffle(members)
        num_tried = min(_NUM_TRIED, round(len(members) * _TRIED))
        tried, checked = tuple(members[:num_tried]), tuple(members[num_tried : num_tried + _NUM_TRIED])
        trials.append((index_dir, tried, checked, _choose_candidates(tried, feedback)))
    _logger.info(f"templates: trying out words for {len(names)} kinds of questions")
    templates = dict(zip(names, _find_all(trials), strict=True))
    _logger.info(f"templates: {sum(map(bool, templates.values()))} of {len(names)} kinds gain by words")
    return templates


@lru_cache(maxsize=1)
def find_templates_once(
    questions: tuple[Question, ...], index_dir: Path, index_fingerprint: str, seed: int
) -> tuple[QuestionWords, dict[frozenset[str], dict[str, int]]]:
    """The common words of these questions, and what `find_templates` finds with them; once for those who ask for the same one
    after the other, as the stages of a pipeline do. `index_fingerprint` says whether the index is still the same."""
    words = QuestionWords([question.question for question in questions])
    return words, find_templates(questions, words, index_dir, seed)


def _find_all(trials: Sequence[tuple[Any, ...]]) -> list[dict[str, int]]:
    """Of each trial, which are arguments, what `find_words` finds."""
    num_processes = min(len(os.sched_getaffinity(0)), len(trials))
    if num_processes < 2:
        return [find_words(*trial) for trial in trials]
    # Spawned, since the process that asks may hold an engine.
    with ProcessPoolExecutor(num_processes, multiprocessing.get_context("spawn"), end_with_parent) as pool:
        return list(pool.map(find_words, *zip(*trials, strict=True)))


def _choose_candidates(questions: Sequence[Question], feedback: NeighbourFeedback) -> tuple[str, ...]:
    """The words that weigh most, on the whole, in what sets the pages of questions like these apart."""
    totals: Counter[str] = Counter()
    for question in questions:
        totals.update(dict(list(feedback.weigh_terms(question.question).items())[:_NUM_CANDIDATES]))  # type: ignore[arg-type]
    return tuple(feedback.forms.write(term) for term, _ in totals.most_common(_NUM_CANDIDATES))
