"""Training and test questions that share no question, no evidence page and no near-duplicate of one."""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from drag_ray.corpus.config import SplitBy
from drag_ray.corpus.near_duplicates import NO_NEAR_DUPLICATES, NearDuplicates
from drag_ray.corpus.problems import Problem
from drag_ray.corpus.questions import hash_text
from drag_ray.search.normal_form import normalise
from drag_ray.types import Question

_NOT_A_WORD = re.compile(r"[\W_]+")
_REASONS = {
    "id": "it has the id of a test question",
    "question": "it asks the same as test question {id!r}",
    "page": "{own} is evidence of test question {id!r} as well",
    "near_duplicate": "{own} nearly duplicates {other}, evidence of test question {id!r}",
    "file": "{own} holds evidence of test question {id!r} as well",
}
"""Why a question must not be in train, by the kind of its tie to a test question."""


class Tie(NamedTuple):
    """A key that two questions on different sides of a split must not share."""

    kind: Literal["id", "question", "page", "near_duplicate", "file", "group"]
    value: Hashable


def split_questions(
    questions: Sequence[Question], test_fraction: float, seed: int, split_by: SplitBy, near_duplicates: NearDuplicates
) -> tuple[list[Question], list[Problem]]:
    """Questions with `split` set to `train` or `test`, in their order, and what was left out of train.

    Splits that are given stay. What of their train questions overlaps with a test question (see `find_overlaps`) is left out;
    the others are drawn as by `assign_splits`, where nothing is lost but what ties to given questions of both sides.
    """
    kept, left_out = _leave_out_overlaps(questions, split_by, near_duplicates)
    split = assign_splits(kept, test_fraction, seed, split_by, near_duplicates)
    kept, between = _leave_out_overlaps(split, split_by, near_duplicates)
    return kept, left_out + between


def assign_splits(
    questions: Sequence[Question],
    test_fraction: float,
    seed: int,
    split_by: SplitBy = "question",
    near_duplicates: NearDuplicates = NO_NEAR_DUPLICATES,
) -> list[Question]:
    """Questions with `split` set to `train` or `test`, in their order.

    Questions that share an evidence page, a question text or a group, and with `document` also an evidence file, are split
    as one, and so are those whose evidence pages nearly duplicate each other. Components go to test in an order drawn by
    `seed` as long as they fit into the fraction of questions, so one that is larger goes to train. A question that comes
    with a split keeps it; the others of its component follow, to train if the given ones disagree.

    Components that near-duplicates join are drawn together where the first of them would be. So near-duplicates change nothing
    of a drawn split that they do not cross.
    """
    members: dict[int, list[int]] = defaultdict(list)
    for index, component in enumerate(_compute_components(questions, split_by, near_duplicates)):
        members[component].append(index)
    places = _draw_places(questions, seed, split_by)
    splits = [question.split for question in questions]
    free = round(test_fraction * len(questions)) - splits.count("test")
    for component in sorted(members, key=lambda component: min(places[index] for index in members[component])):
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


def find_overlaps(
    questions: Iterable[Question], evaluation: Iterable[Question], split_by: SplitBy, near_duplicates: NearDuplicates
) -> dict[str, str]:
    """Questions that must not be trained on, since evaluation asks for the same: the reason by the id.

    They share the id, the text or an evidence page with one of `evaluation`, have an evidence page that nearly duplicates one of
    its own, or with `document` share an evidence file. A group that they share is no reason: what is in both was put there.
    """
    asked: dict[Tie, tuple[str, str]] = {}
    for question in evaluation:
        for tie, place in _list_ties(question, split_by, near_duplicates):
            asked.setdefault(tie, (place, question.id))
    overlaps: dict[str, str] = {}
    for question in questions:
        for tie, own in _list_ties(question, split_by, near_duplicates):
            if tie in asked:
                other, identity = asked[tie]
                overlaps[question.id] = _REASONS[tie.kind].format(own=own, other=other, id=identity)
                break
    return overlaps


def normalise_question(text: str) -> str:
    """A question in its normal form without case, punctuation and spacing: what counts as the same question."""
    return _NOT_A_WORD.sub(" ", normalise(text).casefold()).strip()


def _leave_out_overlaps(
    questions: Sequence[Question], split_by: SplitBy, near_duplicates: NearDuplicates
) -> tuple[list[Question], list[Problem]]:
    train, test = ([question for question in questions if question.split == split] for split in ("train", "test"))
    overlaps = find_overlaps(train, test, split_by, near_duplicates)
    problems = [
        Problem(f"question {name}", f"{reason}, so it is left out of train", "test_overlap") for name, reason in overlaps.items()
    ]
    return [question for question in questions if question.id not in overlaps], problems


def _draw_places(questions: Sequence[Question], seed: int, split_by: SplitBy) -> list[str]:
    """Random sort keys of questions: equal for those that belong together, near-duplicates aside."""
    parts = _compute_components(questions, split_by, NO_NEAR_DUPLICATES)
    smallest_ids: dict[int, str] = {}
    for part, question in zip(parts, questions, strict=True):
        smallest_ids[part] = min(smallest_ids.get(part, question.id), question.id)
    drawn = {part: hash_text(smallest_id, seed) for part, smallest_id in smallest_ids.items()}
    return [drawn[part] for part in parts]


def _compute_components(questions: Sequence[Question], split_by: SplitBy, near_duplicates: NearDuplicates) -> list[int]:
    groups = ([Tie("group", question.group)] if question.group else [] for question in questions)
    ties = ([tie for tie, _ in _list_ties(question, split_by, near_duplicates)] for question in questions)
    return compute_components([*own, *group] for own, group in zip(ties, groups, strict=True))


def _list_ties(question: Question, split_by: SplitBy, near_duplicates: NearDuplicates) -> Iterator[tuple[Tie, str]]:
    """Ties of a question, which one side of a split alone may have, and their places in words; plainest first."""
    yield Tie("id", question.id), ""
    yield Tie("question", normalise_question(question.question)), ""
    places = {item: f"page {item.page_number} of {item.file!r}" for item in question.evidence}
    for item, place in places.items():
        yield Tie("page", item), place
    for item, place in places.items():
        for number in near_duplicates.get(item, ()):
            yield Tie("near_duplicate", number), place
    if split_by == "document":
        for item in question.evidence:
            yield Tie("file", item.file), repr(item.file)


def compute_components(keys: Iterable[Iterable[Hashable]]) -> list[int]:
    """The component of each item, named by the position of its first member.

    Args:
        keys: for each item the things it is tied by; two items that share one are in one component.
    """
    from scipy.cluster.hierarchy import DisjointSet  # slow to import

    joined = DisjointSet()
    holders: dict[Hashable, int] = {}
    num_items = 0
    for item, item_keys in enumerate(keys):
        num_items += joined.add(item) is None
        for key in item_keys:
            joined.merge(holders.setdefault(key, item), item)
    first_members: dict[int, int] = {}
    return [first_members.setdefault(joined[item], item) for item in range(num_items)]
