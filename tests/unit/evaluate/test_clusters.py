import pytest
from factories import build_question, build_trajectory

from drag_ray.evaluate.results import compute_results
from drag_ray.evaluate.statistics.clusters import compute_cluster_sizes, compute_clusters
from drag_ray.types import Evidence


def cluster(*places):
    """The clusters of questions with these (file, group)."""
    questions = [
        build_question(id=f"q{number}", evidence=(Evidence(file, 1), Evidence("other.pdf", 2)), group=group)
        for number, (file, group) in enumerate(places)
    ]
    rollouts = [build_trajectory(question=questions[0])]  # the others have none: they are in their clusters all the same
    return compute_clusters(compute_results({"base": rollouts}, questions)["base"])


def test_questions_of_one_document_are_a_cluster_by_their_first_page():
    assert cluster(("a", ""), ("b", ""), ("a", ""), ("c", ""), ("b", "")).tolist() == [0, 1, 0, 2, 1]


def test_documents_of_one_group_are_a_cluster():
    assert cluster(("a", "x"), ("b", "x"), ("c", "y"), ("d", ""), ("e", "")).tolist() == [0, 0, 1, 2, 3]


def test_groups_that_cross_documents_do_not_chain_them():
    # Group x is in a and in b, of which both hold other groups too.
    assert cluster(("a", "x"), ("b", "x"), ("a", "y"), ("b", "z"), ("c", "y")).tolist() == [0, 1, 0, 1, 2]


def test_sizes_say_how_much_the_clusters_tell():
    sizes = compute_cluster_sizes(cluster(("a", ""), ("b", ""), ("a", ""), ("a", "")))
    assert (sizes.num_clusters, sizes.largest) == (2, 3)
    assert sizes.num_effective == pytest.approx(16 / 10)
