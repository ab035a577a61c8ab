"""The validation split: by question, with questions that share an evidence page on the same side."""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping

Page = tuple[str, int]


def choose_validation_questions(evidence: Mapping[str, Iterable[Page]], fraction: float, seed: int) -> frozenset[str]:
    """The ids of the questions to validate with.

    Questions that share an evidence page, directly or through others, stay together.  Groups are taken in an order
    that depends on the seed and on their ids alone, as long as they fit; the same questions always split the same way.

    Args:
        evidence: (file, page_number) of the evidence pages of each question id.
        fraction: share of the questions to take, within [0, 1); at least one if it is not 0 and groups allow it.
        seed: another seed takes other questions.
    """
    groups = _group_by_shared_pages(evidence)
    limit = min(max(1, round(fraction * len(evidence))), len(evidence) - 1) if fraction else 0
    chosen: set[str] = set()
    for group in sorted(groups, key=lambda members: hashlib.sha256(f"{seed}:{members[0]}".encode()).digest()):
        if len(chosen) + len(group) <= limit:
            chosen.update(group)
    return frozenset(chosen)


def _group_by_shared_pages(evidence: Mapping[str, Iterable[Page]]) -> list[list[str]]:
    """Connected components of the questions, each sorted; a union-find over shared pages."""
    parent = {question: question for question in evidence}

    def find_root(question: str) -> str:
        while parent[question] != question:
            parent[question] = parent[parent[question]]
            question = parent[question]
        return question

    first_question: dict[Page, str] = {}
    for question, pages in evidence.items():
        for page in pages:
            parent[find_root(question)] = find_root(first_question.setdefault(page, question))
    groups = defaultdict(list)
    for question in sorted(evidence):
        groups[find_root(question)].append(question)
    return list(groups.values())
