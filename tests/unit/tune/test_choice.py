"""The choice among first stages, from ranks made by hand: what is better, what is so by chance alone, what cannot be told."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from drag_ray.agent.config import AgentConfig
from drag_ray.tune.choice import Choice, Part, choose
from drag_ray.tune.choice_folder import build_rows, format_choice, write_choice
from drag_ray.tune.first_stages import FirstStage, find_ranks, list_first_stages, rank_pages
from drag_ray.types import Evidence, Hit, Question

AGENT = AgentConfig()
STAGES = list_first_stages(AGENT, has_vectors=True)
Rank = Callable[[FirstStage, int, str], int]
"""The rank of the evidence of a question by a first stage, on a part."""


def build_part(name: str, rank: Rank, num_questions: int = 40, num_documents: int = 20) -> Part:
    questions = [
        Question(f"{name}{place}", "", (Evidence(f"{name}{place % num_documents}.pdf", 1),)) for place in range(num_questions)
    ]
    ranks = {
        stage: [(found,) if (found := rank(stage, place, name)) else () for place in range(num_questions)] for stage in STAGES
    }
    return Part(questions, ranks)


def choose_by(rank: Rank, agent: AgentConfig = AGENT, depth: int = 50, **sizes: int) -> Choice:
    parts = build_part("choosing", rank, **sizes), build_part("checking", rank, **sizes)
    return choose(parts, STAGES, agent, depth, seed=0)


def test_vectors_that_find_more_are_chosen_for_both() -> None:
    choice = choose_by(lambda stage, place, part: 1 if stage.retrieval == "dense" else 3)
    assert (choice.shown, choice.candidates) == (FirstStage("dense", "key"),) * 2
    words, shown, read = choice.decisions
    assert (words.gain, words.taken) == (None, FirstStage("bm25", "key"))
    assert shown.gain == shown.low == shown.high == pytest.approx(2 / 3)
    assert read.gain is None
    assert choice.to_options(AGENT) == {
        "agent": {"retrieval": "dense", "question_words": "key"},
        "format": {"relevance_retrieval": "dense"},
        "evaluate": {"rerank": {"retrieval": "dense"}},
    }


def test_a_gain_that_does_not_hold_on_other_documents_changes_nothing() -> None:
    def rank(stage: FirstStage, place: int, part: str) -> int:
        better = part == "choosing" or place % 3 == 0
        return (1 if better else 3) if stage.retrieval == "dense" else 2

    choice = choose_by(rank)
    assert (choice.shown, choice.candidates) == (FirstStage("bm25", "key"),) * 2
    shown = choice.decisions[1]
    assert (shown.best, shown.holds) == (FirstStage("dense", "key"), False)
    assert shown.gain == pytest.approx((14 * (1 - 1 / 2) + 26 * (1 / 3 - 1 / 2)) / 40)
    assert shown.low is not None
    assert shown.low < 0


def test_of_equal_searches_the_configured_one_stays() -> None:
    for agent in (AGENT, AgentConfig(retrieval="dense", question_words="all"), AgentConfig(retrieval="hybrid", dense_weight=0.2)):
        choice = choose_by(lambda stage, place, part: 1 + place % 3, agent)
        expected = FirstStage(agent.retrieval, agent.question_words, agent.dense_weight)
        assert (choice.shown, choice.candidates) == (expected, expected)
        assert all(decision.gain is None for decision in choice.decisions)


def test_words_and_a_weight_are_chosen_and_one_weight_holds_for_both() -> None:
    def rank(stage: FirstStage, place: int, part: str) -> int:
        if stage.retrieval == "hybrid":
            return {0.35: 2, 0.8: 60}.get(stage.dense_weight or 0, 5) if stage.words == "all" else 9
        return 60 if stage.retrieval == "dense" else (10 if stage.words == "key" else 7)

    choice = choose_by(rank)
    assert choice.shown == choice.candidates == FirstStage("hybrid", "all", 0.35)
    assert choice.to_options(AGENT)["agent"] == {"retrieval": "hybrid", "question_words": "all", "dense_weight": 0.35}
    assert choice.to_options(AGENT)["format"]["relevance_dense_weight"] == 0.35


def test_a_reader_may_be_given_what_is_not_shown() -> None:
    def rank(stage: FirstStage, place: int, part: str) -> int:
        if stage.retrieval == "bm25":
            return 1 if place % 2 else 0
        return 8 if stage == FirstStage("hybrid", "key", 0.5) else 0

    choice = choose_by(rank)
    assert (choice.shown, choice.candidates) == (FirstStage("bm25", "key"), FirstStage("hybrid", "key", 0.5))
    options = choice.to_options(AGENT)
    assert options["agent"] == {"retrieval": "bm25", "question_words": "key", "dense_weight": 0.5}
    assert options["evaluate"]["rerank"]["retrieval"] == options["format"]["relevance_retrieval"] == "hybrid"
    assert choose_by(rank, depth=5).candidates == choice.shown  # not among so few pages


@pytest.mark.parametrize(
    ("num_questions", "far", "fewest", "taken"),
    [
        (400, {}, 20, 20),  # all evidence is at rank 7 or 15
        (400, {"choosing": 8}, 50, 50),  # 2 % of it at rank 60 may be more by chance
        (400, {"checking": 8}, 20, 100),
        (400, {"choosing": 1, "checking": 1}, 20, 20),
        (149, {}, 100, 100),
    ],
)
def test_a_reader_is_given_fewer_pages_where_hardly_any_evidence_is_missed(
    num_questions: int, far: dict[str, int], fewest: int, taken: int
) -> None:
    def rank(stage: FirstStage, place: int, part: str) -> int:
        return 30 if place < far.get(part, 0) else 7 if place % 2 else 15

    choice = choose_by(rank, depth=100, num_questions=num_questions, num_documents=num_questions)
    assert choice.depth
    assert (choice.depth.fewest, choice.depth.taken) == (fewest, taken)
    assert choice.to_options(AGENT)["evaluate"]["rerank"].get("depth", 100) == taken
    late = far.get("checking", 0)
    found = {5: 0, 10: num_questions // 2 - late // 2, 20: num_questions - late, 50: num_questions, 100: num_questions}
    assert choice.depth.recalls == pytest.approx({depth: number / num_questions for depth, number in found.items()})
    if choice.depth.fewest < 100:
        assert choice.depth.lost == pytest.approx(far.get("checking", 0) / num_questions if fewest == 20 else 0)


@pytest.mark.parametrize(
    ("num_questions", "end"),
    [
        (
            150,
            "Pages to read: the best 10 lose 0.000 of the recall at 20, at most 0.000, on the questions to check by, so they are",
        ),
        (140, "Pages to read: fewer than 20 lose more than 0.02 of the recall, or may, with so few questions; all are read."),
    ],
)
def test_what_each_depth_finds_is_said_and_kept(tmp_path: Path, num_questions: int, end: str) -> None:
    parts = [
        build_part(part, lambda stage, place, part: 4 if place % 5 else 9, num_questions) for part in ("choosing", "checking")
    ]
    choice = choose((parts[0], parts[1]), STAGES, AGENT, depth=20, seed=0)
    said = format_choice(build_rows((parts[0], parts[1]), STAGES, AGENT.depth), choice, AGENT)
    recalls = "Recall of key words on the questions to check by: .800 at 5, 1.000 at 10, 1.000 at 20."
    assert recalls in said
    assert end in said
    write_choice(tmp_path, choice, AGENT, [num_questions] * 2)
    assert json.loads((tmp_path / "choice.json").read_text())["depth"]["recalls"] == {"5": 0.8, "10": 1, "20": 1}


def test_too_few_questions_or_documents_choose_nothing() -> None:
    def rank(stage: FirstStage, place: int, part: str) -> int:
        return 1 if stage.retrieval == "dense" else 9

    few = choose_by(rank, num_questions=24)
    assert "48 training questions with evidence are too few to choose by, expected 50" in few.reason
    assert few.to_options(AGENT) == {}
    assert few.shown == FirstStage("bm25", "key")
    assert "of too few documents: 4 could be kept apart" in choose_by(rank, num_documents=4).reason


def test_an_agent_that_writes_whole_queries_has_no_words_to_choose_and_an_index_without_vectors_words_alone() -> None:
    rewriting = AgentConfig(query_mode="rewrite")
    assert list_first_stages(rewriting, has_vectors=False) == [FirstStage("bm25", "all")]
    assert list_first_stages(AGENT, has_vectors=False) == [FirstStage("bm25", "key"), FirstStage("bm25", "all")]
    assert {stage.words for stage in list_first_stages(rewriting, has_vectors=True)} == {"all"}
    weighing = list_first_stages(AgentConfig(dense_weight=0.9), has_vectors=True)
    assert FirstStage("hybrid", "key", 0.9) in weighing
    assert FirstStage("hybrid", "key", None) not in weighing  # no option takes a weight back


def test_measures_are_those_of_ranks_computed_by_hand() -> None:
    stage = FirstStage("bm25", "key")
    pages = tuple(Evidence("a.pdf", number) for number in (1, 2))
    part = Part([Question("1", "", pages), Question("2", "", pages[:1]), Question("3", "", pages)], {stage: [(2, 30), (), (11,)]})
    assert part.measure(stage, 10) == {
        "hit_at_1": 0.0,
        "hit_at_3": pytest.approx(1 / 3),
        "hit_at_10": pytest.approx(1 / 3),
        "mrr": pytest.approx(1 / 6),
        "recall_at_20": pytest.approx((0.5 + 0 + 0.5) / 3),
        "recall_at_50": pytest.approx((1 + 0 + 0.5) / 3),
    }
    assert set(Part([], {stage: []}).measure(stage, 10).values()) == {None}


def test_pages_are_those_of_words_of_vectors_of_both_or_in_turn() -> None:
    words, dense = ([Hit(name, 1, rank, 9.0 - rank) for rank, name in enumerate(names, start=1)] for names in ("abc", "cd"))

    def rank(stage: FirstStage) -> str:
        return "".join(page.file for page in rank_pages(stage, words, dense))

    assert (rank(FirstStage("bm25")), rank(FirstStage("dense"))) == ("abc", "cd")
    assert rank(FirstStage("union")) == "acbd"
    assert rank(FirstStage("hybrid")) == "cabd"
    assert rank(FirstStage("hybrid", "all", 0.0))[0] == "a"
    assert find_ranks([hit.page for hit in words], [Evidence("c", 1), Evidence("a", 1), Evidence("x", 1)]) == (1, 3)
