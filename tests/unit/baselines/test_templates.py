"""Words for each kind of question: kinds, the search for words, and what is asked for with them."""

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path

import pytest
from factories import build_page, build_question
from small_index import write_index

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.task import RolloutTask
from drag_ray.baselines import templates as module
from drag_ray.baselines.question_words import QuestionWords, choose_kind, compute_jaccard, find_kinds
from drag_ray.baselines.rollouts import BaselineOptions, build_proposals, build_rollouts
from drag_ray.baselines.templates import Templates, climb, find_templates, find_templates_once, find_words
from drag_ray.baselines.weights import vary_words, write_words
from drag_ray.search.searcher import Searcher
from drag_ray.types import ActionKind, Evidence, Question

DISEASES = ["gout", "mumps", "rabies", "scurvy", "tetanus", "typhus", "cholera", "measles", "asthma", "polio", "rickets", "lupus"]
TREATED, SEEN = frozenset({"how", "is", "treated"}), frozenset({"what", "are", "the", "signs", "of"})


def kind(*words: str) -> frozenset[str]:
    return frozenset(words)


def test_words_of_single_subjects_are_not_common() -> None:
    words = QuestionWords([f"How is {disease} treated?" for disease in DISEASES])
    assert words.pick("How was gout treated, and how not?") == {"how", "treated"}
    assert words.pick("") == frozenset()
    assert words.compare("is it treated at all").tolist() == pytest.approx([2 / 3] * len(DISEASES))
    assert QuestionWords([]).pick("anything") == frozenset()
    assert compute_jaccard(frozenset(), frozenset()) == 0


def test_kinds_are_wordings_that_are_common_or_unlike_others() -> None:
    rare = [kind("how", "is", "treated", "early")] * 2  # like the first kind
    own = [kind("how", "is", "treated", "the", "old")] * 5  # as like it, but often asked
    lonely = [kind("why")] * 4  # of no kind's words, and too few
    wordings = [TREATED] * 9 + rare + own + [SEEN] * 6 + lonely
    assert find_kinds(wordings, 5) == {TREATED: list(range(11)), own[0]: list(range(11, 16)), SEEN: list(range(16, 22))}
    assert find_kinds(wordings, 100) == {}
    assert find_kinds([frozenset()] * 9, 5) == {}


def test_a_question_is_of_the_kind_whose_words_it_shares() -> None:
    kinds = [TREATED, SEEN]
    assert choose_kind(kind("treated", "how", "when"), kinds) == TREATED
    assert choose_kind(kind("signs", "is", "the"), kinds) == SEEN
    assert choose_kind(kind("why"), kinds) is None
    assert choose_kind(kind("treated", "when"), kinds) is None  # a quarter of the words of both
    assert choose_kind(TREATED, []) is None


def test_the_climb_takes_the_best_steps_while_they_gain() -> None:
    worth = {"therapy": 0.2, "drug": 0.1, "gout": -0.1, "page": 0.001}
    tried: list[Mapping[str, int]] = []

    def score(weights: Mapping[str, int]) -> float:
        tried.append(weights)
        return sum(worth[word] * min(weight, 2) for word, weight in weights.items())

    found = climb(list(worth), score, max_words=3, max_weight=3, least_gain=0.01)
    assert list(found.items()) == [("therapy", 2), ("drug", 2)]
    assert all(len(weights) <= 3 and all(1 <= weight <= 3 for weight in weights.values()) for weights in tried)
    assert climb(list(worth), score, max_words=1, max_weight=3, least_gain=0.01) == {"therapy": 2}
    assert climb(["gout"], score, max_words=3, max_weight=3, least_gain=0.01) == {}
    assert climb([], score, max_words=3, max_weight=3, least_gain=0.01) == {}


def test_a_step_may_take_back_an_earlier_one() -> None:
    scores = {"": 0.0, "a": 0.3, "b": 0.2, "c": 0.1, "ab": 0.4, "ac": 0.35, "bc": 0.9}
    found = climb(
        ["a", "b", "c"],
        lambda weights: scores.get("".join(sorted(weights)), 0.5),  # all three: worth less than b and c without a
        max_words=3,
        max_weight=1,
        least_gain=0.05,
    )
    assert found == {"b": 1, "c": 1}


def test_words_are_varied_by_the_seed_alone() -> None:
    weights = {"therapy": 2, "drug": 1, "surgery": 1}
    assert write_words(weights) == "therapy^2 drug surgery"
    assert write_words({}) == ""
    draws = [vary_words(weights, random.Random(seed)) for seed in range(200)]
    assert draws == [vary_words(weights, random.Random(seed)) for seed in range(200)]
    assert all(list(draw) == [word for word in weights if word in draw] for draw in draws)
    assert {draw.get("therapy") for draw in draws} == {None, 2, 3}
    assert sum(draw == weights for draw in draws) > 60


def ask(disease: str, asked: str) -> Question:
    text = f"How is {disease} treated?" if asked == "treated" else f"What are the signs of {disease}?"
    page_number = ("treated", "seen").index(asked) + 1
    return build_question(id=f"{disease}-{asked}", question=text, evidence=(Evidence(f"{disease}.pdf", page_number),))


@pytest.fixture(scope="module")
def questions() -> list[Question]:
    return [ask(disease, asked) for disease in DISEASES for asked in ("treated", "seen")]


@pytest.fixture(scope="module")
def index_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of a disease has a page of its treatment and a page of its signs, and neither word is in them."""
    folder = tmp_path_factory.mktemp("templates")
    pages = [
        build_page(file=f"{disease}.pdf", page_number=number, text=f"{disease} {text}")
        for disease in DISEASES
        for number, text in enumerate(("therapy with drugs at home", "fever, rash"), start=1)
    ]
    write_index(folder, pages, [])
    return folder / "search_index"


@pytest.fixture(scope="module")
def templates(questions: list[Question], index_dir: Path) -> Templates:
    words = QuestionWords([question.question for question in questions])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LEAST_QUESTIONS", 6)
        patch.setattr(module, "_NUM_TRIED", 12)
        return Templates(words, find_templates(questions, words, index_dir, seed=0))


@pytest.mark.seconds
def test_words_are_found_that_lift_the_pages_of_a_kind(templates: Templates) -> None:
    assert set(templates.templates) == {TREATED, SEEN}
    # The pages of signs are shorter, so they come first without a word: nothing is to be gained there.
    assert templates.templates[SEEN] == {}
    assert set(templates.templates[TREATED]) <= {"therapy", "drugs", "home"}
    assert templates.templates[TREATED]
    assert templates.find_template("How is beriberi treated?") == templates.templates[TREATED]
    assert templates.find_template("Why?") == {}


def test_words_that_gain_on_the_questions_that_they_were_found_on_alone_are_left_out(index_dir: Path) -> None:
    treated, seen = ([ask(disease, asked) for disease in DISEASES] for asked in ("treated", "seen"))
    assert find_words(index_dir, treated[:8], treated[8:], ["therapy"])
    assert find_words(index_dir, treated[:8], seen[8:], ["therapy"]) == {}
    assert find_words(index_dir, treated[:8], treated[8:], ["beriberi"]) == {}


def test_the_stages_of_a_pipeline_try_words_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    def find(questions: tuple[Question, ...], words: QuestionWords, *rest: object) -> dict[frozenset[str], dict[str, int]]:
        asked.append((questions, words.pick("How is it treated?"), *rest))
        return {TREATED: {"therapy": len(asked)}}

    monkeypatch.setattr(module, "find_templates", find)
    questions = tuple(ask(disease, "treated") for disease in DISEASES)
    folder = Path("index")
    assert [find_templates_once(questions, folder, "one", 0)[1] for _ in range(2)] == [{TREATED: {"therapy": 1}}] * 2
    assert asked == [(questions, TREATED, folder, 0)]
    assert find_templates_once(questions, folder, "other", 0)[1] == {TREATED: {"therapy": 2}}
    assert find_templates_once(questions[1:], folder, "other", 0)[1] == {TREATED: {"therapy": 3}}


@pytest.mark.seconds
def test_a_question_is_searched_with_the_words_of_its_kind(templates: Templates, index_dir: Path) -> None:
    searcher = Searcher(index_dir)
    options = BaselineOptions(AgentConfig(top_k=2), {"templates": templates})
    rollouts = build_rollouts("templates", options, searcher)
    for asked, page_number in (("treated", 1), ("seen", 2)):
        question = ask("rabies", asked)
        trajectory = asyncio.run(rollouts.run(RolloutTask(question, 0, "greedy", 7, baseline="templates")))
        first = trajectory.turns[0].ranking.hits[0]
        assert (first.file, first.page_number) == ("rabies.pdf", page_number)
        assert searcher.search(question.question, 1)[0].page_number == 2  # whatever is asked


@pytest.mark.seconds
def test_proposals_vary_the_words_by_their_seed(templates: Templates, index_dir: Path) -> None:
    agent = AgentConfig(top_k=2, query_mode="expand", max_iterations=1, question_weight=1)
    rollouts = build_proposals("templates", BaselineOptions(agent, {"templates": templates}), Searcher(index_dir))
    tasks = [RolloutTask(ask("rabies", "treated"), 0, "default", seed, baseline="templates") for seed in range(40)]
    trajectories = [asyncio.run(rollouts.run(task)) for task in tasks]
    assert all(trajectory.turns[0].action is ActionKind.SEARCH for trajectory in trajectories)
    queries = {trajectory.turns[0].query for trajectory in trajectories}
    assert len(queries) > 1
    assert all(word.partition("^")[0] in templates.templates[TREATED] for query in queries for word in query.split())
