"""Training and test questions that share neither a question nor an evidence page."""

import re
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Literal

from drag_ray.corpus.components import compute_components
from drag_ray.corpus.questions import hash_text
from drag_ray.types import Question

_NOT_A_WORD = re.compile(r"[\W_]+")


def assign_splits(
    questions: Sequence[Question], test_fraction: float, seed: int, split_by: Literal["question", "document"] = "question"
) -> list[Question]:
    """Questions with `split` set to `train` or `test`, in their order.

    Questions that share an evidence page, a question text or a group, and with `document` also an evidence file,
    are split as one. Components go to test in an order drawn by `seed` as long as they fit into the fraction of
    questions, so one that is larger goes to train. A question that comes with a split keeps it; the others of
    its component follow, to train if the given ones disagree.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for index, component in enumerate(compute_components(_list_ties(question, split_by) for question in questions)):
        members[component].append(index)
    splits = [question.split for question in questions]
    free = round(test_fraction * len(questions)) - splits.count("test")
    smallest_ids = {component: min(questions[index].id for index in indices) for component, indices in members.items()}
    for component in sorted(members, key=lambda component: hash_text(smallest_ids[component], seed)):
        unsplit = [index for index in members[component] if not splits[index]]
        given = {splits[index] for index in members[component]} - {""}
        if given:
            split = "test" if given == {"test"} else "train"
        else:
            split = "test" if len(unsplit) <= free else "train"
            free -= len(unsplit) if split == "test" else 0
        for index in unsplit:
            splits[index] = split
    return [replace(question, split=split) for question, split in zip(questions, splits, strict=True)]


def normalise_question(text: str) -> str:
    """A question without case, punctuation and spacing: what counts as the same question."""
    return _NOT_A_WORD.sub(" ", text.casefold()).strip()


def _list_ties(question: Question, split_by: str) -> list[Hashable]:
    ties: list[Hashable] = [("question", normalise_question(question.question))]
    ties += [("page", item.file, item.page_number) for item in question.evidence]
    if question.group:
        ties.append(("group", question.group))
    if split_by == "document":
        ties += [("file", item.file) for item in question.evidence]
    return ties
