"""A reranker of a few features: what they are, that the fit is the likeliest, that it learns from training questions alone."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from factories import build_question
from scipy.optimize import brentq
from small_index import write_index

from drag_ray.baselines.baseline import Sources
from drag_ray.baselines.feature_model import FeatureModel, describe_other_features, read_features, write_features
from drag_ray.baselines.feature_training import draw_folds, fit_factors, fit_weights
from drag_ray.baselines.features import Features
from drag_ray.baselines.page_features import FeatureScorer, FeatureSearcher, PageTerms, compute_features
from drag_ray.errors import ConfigError
from drag_ray.evaluate.config import EvaluateConfig
from drag_ray.search.config import Factors
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hit, Hits, Page, Question

DISEASES = [f"{first}{last}itis" for first in ("gastr", "nephr", "arthr", "derm", "bronch") for last in ("o", "a", "e", "u", "i")]


PAGES = [
    Page(f"{disease}.pdf", number, 2, f"{disease} {text}", "text")
    for disease in DISEASES
    for number, text in ((1, "therapy drugs surgery dose"), (2, "fever pain rash cough"))
]
"""A page of the treatment and one of the signs of each disease, which no word of a question tells apart."""


def ask(disease: str, text: str, number: int, split: str) -> Question:
    question = text.format(disease)
    return build_question(id=question, question=question, evidence=(Evidence(f"{disease}.pdf", number),), split=split)


def write_collection(folder: Path, test_pages: tuple[int, int] = (1, 2)) -> list[Question]:
    """Ten test questions, and forty to learn from."""
    questions = [
        ask(disease, text, numbers[is_test], "test" if is_test else "train")
        for place, disease in enumerate(DISEASES)
        for is_test in [place < 5]
        for text, numbers in (
            ("How is {} treated?", (1, test_pages[0])),
            ("What does {} look like?", (2, test_pages[1])),
        )
    ]
    write_index(folder, PAGES, questions)
    return questions


def prepare(folder: Path) -> Features:
    return Features.prepare(Sources(EvaluateConfig(), folder, seed=0))


def take_learned(features: Features) -> tuple[object, ...]:
    model = features.model
    return model.kinds, model.means, model.deviations, model.weights


def rank_evidence(features: Features, folder: Path, questions: Sequence[Question]) -> list[int]:
    searcher = features.open_searcher(Searcher(folder / "search_index"))
    return [next(hit.rank for hit in searcher.search(one.question, 10) if hit.page in one.evidence) for one in questions]


@pytest.mark.seconds
def test_which_kind_of_page_answers_which_kind_of_question_is_learned_from_training_questions(tmp_path: Path) -> None:
    asked = [question for question in write_collection(tmp_path) if question.split == "test"]
    features = prepare(tmp_path)
    assert rank_evidence(Features(features.options), tmp_path, asked) == [1, 2] * 5  # by words both pages are equal
    assert rank_evidence(features, tmp_path, asked) == [1, 1] * 5
    assert take_learned(features) == take_learned(prepare(tmp_path))
    assert features.model.num_questions == 40
    assert "from 40 questions" in features.describe()


@pytest.mark.seconds
def test_nothing_of_test_questions_is_learned(tmp_path: Path) -> None:
    write_collection(tmp_path)
    write_collection(tmp_path / "other", test_pages=(2, 1))
    assert take_learned(prepare(tmp_path / "other")) == take_learned(prepare(tmp_path))


def test_too_few_questions_leave_the_order_as_it_is(tmp_path: Path) -> None:
    pages = [Page("a.pdf", number, 2, "rotor speed " * number, "text") for number in (1, 2)]
    questions = [build_question(id=f"q{number}", question="rotor?", evidence=(Evidence("a.pdf", 2),)) for number in range(5)]
    write_index(tmp_path, pages, questions)
    features = prepare(tmp_path)
    assert features.model.weights == ()
    assert "too few questions: the order stays" in features.describe()
    index = Searcher(tmp_path / "search_index")
    assert features.open_searcher(index).search("rotor?", 1) == index.search("rotor?", 2)[:1]
    assert features.open_searcher(index).search("nothing like it", 3) == Hits()


def test_weights_are_the_likeliest_with_their_penalty() -> None:
    """n questions with two pages each, whose feature is 1 and 0: n / (1 + e^w) = w. Three evidence pages count as one."""
    num_questions = 7
    wanted = brentq(lambda w: num_questions / (1 + math.exp(w)) - w, 0, 10)
    rows = [np.array([[1.0], [0.0]])] * num_questions
    assert fit_weights(rows, [np.array([True, False])] * num_questions) == pytest.approx([wanted], abs=1e-4)
    several = np.array([[1.0], [1.0], [1.0], [0.0]])
    alone = brentq(lambda w: 1 / (3 * math.exp(w) + 1) - w, 0, 10)
    assert fit_weights([several], [np.array([True, True, True, False])]) == pytest.approx([alone], abs=1e-4)


@pytest.mark.seconds
def test_a_model_counts_beside_features_as_much_as_it_tells_and_never_against_its_order() -> None:
    """Pages of which features find every second evidence, and a model what it is told to."""
    random_numbers = np.random.default_rng(0)
    hits = Hits([Hit("a.pdf", number, number, 1.0) for number in (1, 2, 3)])

    def judge(signal: float) -> list[tuple[Question, Hits, list[float], list[float]]]:
        judged = []
        for number in range(200):
            right = number % 3
            question = build_question(evidence=(Evidence("a.pdf", right + 1),))
            scores = [(signal * (page == right) + random_numbers.normal()) for page in range(3)]
            features = [1.5 * (page == right) + random_numbers.normal() for page in range(3)]
            judged.append((question, hits, features, scores))
        return judged

    telling, silent, misleading = (fit_factors(judge(signal)) for signal in (3.0, 0.0, -3.0))
    assert telling
    assert silent
    assert telling.model > telling.features > 1  # noise of deviation 1: the likeliest factor is the signal itself
    assert abs(silent.model) < 0.25
    assert misleading == Factors(1.0, 0.0)
    assert fit_factors(judge(3.0)[:19]) is None


def test_features_are_those_that_are_named(tmp_path: Path) -> None:
    pages = [Page("a.pdf", 4, 4, "rotor speed limit", "text"), Page("b.pdf", 1, 1, "speed of the wind", "text")]
    write_index(tmp_path, pages, [build_question()])
    terms = PageTerms(Searcher(tmp_path / "search_index"))
    found = [Hit("a.pdf", 4, 1, 2.0)]
    rotor, speed = math.log(3 / 1.5), math.log(3 / 2.5)
    (row,) = compute_features("rotor wind speed", found, terms, [{"limit": 0.5, "wind": 9.0}])
    share = (rotor + speed) / (2 * rotor + speed)
    assert row.tolist() == pytest.approx([0.0, 1.0, share, share, 0.0, math.log(4), math.log(4), 0.5])
    (row,) = compute_features("rotor speed", found, terms, [])
    assert row.tolist() == pytest.approx([0.0, 1.0, 1.0, 1.0, 1.0, math.log(4), math.log(4)])
    _, second = compute_features("rotor speed", [*found, Hit("b.pdf", 1, 2, 0.5)], terms, [])
    assert second[:2].tolist() == pytest.approx([math.log(2), 0.25])


class Found:
    """A searcher that finds what it is told."""

    def __init__(self, *hits: Hit) -> None:
        self.hits = hits

    def search(self, text: str, top_k: int) -> Hits:
        return Hits(self.hits[:top_k])

    def page(self, hit: Hit) -> Page:
        raise NotImplementedError


def test_as_many_pages_are_found_as_are_wanted(tmp_path: Path) -> None:
    """A ranking that ended where the order ends would have found nothing beyond, whatever depth the others are measured to."""
    write_index(tmp_path, [Page("a.pdf", 1, 1, "x", "text")], [build_question()])
    found = Found(*(Hit("a.pdf", 1, rank, 4.0 - rank) for rank in (1, 2, 3)))
    model = FeatureModel(means=(0.0,) * 9, deviations=(1.0,) * 9, weights=(0.0,) * 9)
    searcher = FeatureSearcher(model, found, 2, Searcher(tmp_path / "search_index"))
    assert [hit.rank for hit in searcher.search("x", 3)] == [1, 2, 3]


def test_what_an_evaluation_leaves_puts_pages_in_the_order_that_it_had(tmp_path: Path) -> None:
    asked = [question for question in write_collection(tmp_path) if question.split == "test"]
    model = replace(prepare(tmp_path).model, with_model=Factors(0.5, 2.0))
    write_features(tmp_path, model)
    again = read_features(tmp_path)
    assert again == model
    searcher = Searcher(tmp_path / "search_index")
    for question in asked:
        hits = searcher.search(question.question, 10)
        assert FeatureScorer(again, searcher)(question.question, hits) == FeatureScorer(model, searcher)(question.question, hits)
    assert not describe_other_features(again, searcher.record.fingerprint)
    assert searcher.record.fingerprint in describe_other_features(again, "another")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "has no features.json"),
        ('{"weights": [NaN]}', "is no model of features"),
        ("[", "is no model of features"),
        ('{"num_questions": 3}', "has learned nothing"),
        ('{"means": [0, 0], "deviations": [1, 1], "weights": [1]}', "has learned nothing"),
    ],
)
def test_a_file_that_is_no_model_is_refused(content: str | None, said: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "features.json").write_text(content)
    with pytest.raises(ConfigError, match=rf"serve\.rerank\.features.*{said}"):
        read_features(tmp_path)


def test_questions_of_one_page_are_in_one_half() -> None:
    pages = [Evidence(f"{number}.pdf", 1) for number in range(10)]
    folds = draw_folds([build_question(evidence=(page,)) for page in pages * 3], seed=0).tolist()
    assert folds == folds[:10] * 3
    assert sorted(folds[:10]) == [0] * 5 + [1] * 5


def test_a_term_of_many_pages_is_in_memory_once(tmp_path: Path) -> None:
    pages = [Page("a.pdf", number, 2, "rotor", "text") for number in (1, 2)]
    write_index(tmp_path, pages, [build_question()])
    terms = PageTerms(Searcher(tmp_path / "search_index"))
    [first], [second] = (terms.read(Evidence("a.pdf", number)) for number in (1, 2))
    assert first is second
