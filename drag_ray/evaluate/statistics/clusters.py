"""Clusters of questions that depend on each other: those of one document are drawn together for intervals and tests."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from drag_ray.corpus.split import compute_components
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.statistics.intervals import Ints

FEW_CLUSTERS = 20
"""With fewer clusters of equal size intervals come out too narrow (Cameron and Miller, 2015, section VI)."""


@dataclass(frozen=True, slots=True)
class ClusterSizes:
    """The number of clusters, the questions of the largest, and how many of equal size would tell as much.

    The last is N^2 over the sum of the squared sizes (Kish, 1965).
    """

    num_clusters: int
    largest: int
    num_effective: float


def compute_clusters(results: Sequence[QuestionResult]) -> Ints:
    """The number of each question's cluster, from 0 in the order of their first questions. Shape (num_questions,).

    A cluster is a document, that of the first evidence page, or the documents of one group.  A group joins only documents that
    are its own with all their questions: groups that cross documents (near-duplicate entries of several manuals) would chain most
    of a collection into one cluster, from which nothing could be told. A question whose pages are not known is by itself.
    """
    groups: dict[str, set[str]] = defaultdict(set)
    for result in results:
        groups[result.file].add(result.group)
    keys = (
        [
            ("file", result.file) if result.file else ("question", result.question_id),
            *([("group", result.group)] if result.file and result.group and len(groups[result.file]) == 1 else []),
        ]
        for result in results
    )
    _, numbers = np.unique(compute_components(keys), return_inverse=True)
    return numbers.astype(np.int64)


def compute_cluster_sizes(clusters: Ints) -> ClusterSizes:
    """The sizes of clusters that are numbered as by `compute_clusters`."""
    sizes = np.bincount(clusters)
    return ClusterSizes(len(sizes), int(sizes.max()), float(sizes.sum() ** 2 / np.sum(sizes**2)))
