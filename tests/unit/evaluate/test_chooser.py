"""The model of gain of an evaluation: what it is fitted to, and what is told of its worth."""

from pathlib import Path

import polars as pl
import pytest
from factories import build_page, build_question

from drag_ray import artifacts, schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.baselines.candidates import LIST_FEATURES, REWARD_FEATURE, CandidateReader
from drag_ray.baselines.gain_model import GainModel, choose_best, read_gain_model
from drag_ray.errors import ArtifactError, DataError
from drag_ray.evaluate.chooser import DescribedQuestion, compute_figures, describe_question, fit_best, fit_chooser
from drag_ray.inputs import Inputs
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import build_index
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence

AGENT = AgentConfig(query_mode="expand", question_weight=1.0, max_iterations=1, top_k=1, depth=3)
SUBJECTS = [f"subject{number}" for number in range(12)]
IS_FUSED = LIST_FEATURES.index("is_fused")


@pytest.fixture(scope="module")
def index_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of each subject two pages, a rule, which is the evidence, and a longer note that the question itself finds no better."""
    folder = tmp_path_factory.mktemp("chooser")
    texts = [text for subject in SUBJECTS for text in (f"{subject} rule with its limit value", f"{subject} note")]
    pages = [build_page(page_number=number, text=text) for number, text in enumerate(texts, start=1)]
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(folder / "pages.parquet", folder / "search_index", SearchConfig())
    questions = [
        build_question(id=f"q{number}", question=f"{subject}?", evidence=(Evidence("manual.pdf", 2 * number + 1),))
        for number, subject in enumerate(SUBJECTS)
    ]
    artifacts.write_parquet(folder / "questions.parquet", schemas.to_table(questions, schemas.QUESTIONS))
    return folder


def write_rows(format_dir: Path, side: str, numbers: range) -> None:
    """The policy adds what helps and what harms, a baseline what changes nothing; the question is there too."""
    queries = [("limit value", ""), ("note subject0 subject1", ""), ("value", "rm3"), ("", "question")]
    rows = [
        {"question_id": f"q{number}", "query": query, "baseline": baseline} for number in numbers for query, baseline in queries
    ]
    artifacts.write_parquet(format_dir / "reward" / f"{side}.parquet", pl.DataFrame(rows).to_arrow())


@pytest.fixture
def inputs(index_dir: Path, tmp_path: Path) -> Inputs:
    write_rows(tmp_path / "format", "train", range(10))
    write_rows(tmp_path / "format", "validation", range(10, 12))
    return Inputs({"index": index_dir, "format": tmp_path / "format", "finetune": None})


def fit(inputs: Inputs, folder: Path, max_questions: int = 100) -> GainModel:
    fit_chooser(AGENT, inputs, None, max_questions, 0, folder)
    return read_gain_model(folder)


def test_a_question_is_described_with_the_gain_of_each_query_alone_and_fused(index_dir: Path) -> None:
    reader = CandidateReader(Searcher(index_dir / "search_index"), AGENT)
    question = build_question(question="subject3?", evidence=(Evidence("manual.pdf", 7),))
    described = describe_question(reader, question, [("value", False), ("limit value", True), ("", False), ("note", True)])
    # The question finds the note first (it is shorter) and the rule second, which is worth .63. One word more does not change
    # that, two do; two lists that turn each other round are fused in the order of their pages.
    gain = 1 - 0.6309297535714575
    assert described.gains == pytest.approx([0, 0, gain, gain, 0, 0])
    assert described.are_own == [False, False, True, True, True, False]
    assert [row[IS_FUSED] for row in described.rows] == [0, 1, 0, 1, 0, 1]


def test_the_chooser_prefers_what_gained_where_it_was_collected(inputs: Inputs, tmp_path: Path) -> None:
    model = fit(inputs, tmp_path / "chooser")
    figures = model.figures
    assert (figures["questions"], figures["candidates"], figures["validation_questions"]) == (10, 60, 2)
    assert figures["oracle_gain"] == figures["first_gain"] == pytest.approx(1 - 0.6309297535714575)
    assert figures["chosen_gain"] == figures["oracle_gain"]
    assert (figures["wins"], figures["losses"]) == (2, 0)
    reader = CandidateReader(Searcher(inputs["index"] / "search_index"), AGENT)
    asked = reader.search_question("subject11?")
    candidates = [reader.search("subject11?", query) for query in ("note subject0 subject1", "limit value")]
    assert choose_best(model.predict(reader.compute_features("subject11?", asked, candidates))) == 1


def test_the_same_rows_make_the_same_file(inputs: Inputs, tmp_path: Path) -> None:
    assert fit(inputs, tmp_path / "one") == fit(inputs, tmp_path / "two")


def test_at_most_so_many_questions_are_searched(inputs: Inputs, tmp_path: Path) -> None:
    assert fit(inputs, tmp_path, max_questions=4).figures["questions"] == 4


def test_without_validation_questions_every_question_stays_as_it_is(inputs: Inputs, tmp_path: Path) -> None:
    path = tmp_path / "format" / "reward" / "validation.parquet"
    artifacts.write_parquet(path, pl.read_parquet(tmp_path / "format" / "reward" / "train.parquet").clear().to_arrow())
    model = fit(inputs, tmp_path / "chooser")
    assert (model.features, model.figures["validation_questions"], model.figures["candidates"]) == ((), 0, 60)


def describe(rewards: list[float], gains: list[float]) -> DescribedQuestion:
    """Searches whose lists are alike."""
    return DescribedQuestion([[*[1.0] * len(LIST_FEATURES), reward] for reward in rewards], gains, [True] * len(gains))


@pytest.mark.seconds
def test_rewards_are_read_only_where_they_help_on_validation_questions() -> None:
    train = [describe([1.0, -1.0], [0.5, -0.5])] * 20
    helps = fit_best(train, train[:2], has_rewards=True)
    assert helps.features[-1] == REWARD_FEATURE
    assert helps.figures["chosen_gain"] == 0.5
    harms = fit_best(train, [describe([1.0, -1.0], [-0.5, 0.5])], has_rewards=True)
    assert (harms.features, harms.figures["chosen_gain"], harms.predict([[1.0], [2.0]])) == ((), 0, [0, 0])


def test_figures_are_of_what_the_policy_itself_would_offer() -> None:
    model = GainModel(("one",), (0.0,), (1.0,), (1.0, 0.0))
    questions = [
        DescribedQuestion([[2.9], [1.0], [2.0]], [0.9, 0.1, -0.2], [False, True, True]),
        DescribedQuestion([[-1.0], [2.0]], [-0.3, 0.4], [True, True]),
        DescribedQuestion([[-1.0]], [0.2], [True]),
        DescribedQuestion([], [], []),
    ]
    figures = compute_figures(model, questions)
    gains = {"chosen_gain": (-0.2 + 0.4) / 4, "oracle_gain": (0.1 + 0.4 + 0.2) / 4, "first_gain": (0.1 - 0.3 + 0.2) / 4}
    assert figures == pytest.approx({"validation_questions": 4, **gains, "wins": 1, "losses": 1})


def test_it_needs_the_format_stage(inputs: Inputs, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"'best_of': this run has no format stage.*jobs/format\.py"):
        fit(Inputs({**inputs.folders, "format": None}), tmp_path)


@pytest.mark.parametrize("problem", ["missing", "damaged", "of an earlier version"])
def test_rows_that_cannot_be_read_are_named_with_the_remedy(inputs: Inputs, tmp_path: Path, problem: str) -> None:
    path = tmp_path / "format" / "reward" / "train.parquet"
    if problem == "missing":
        path.unlink()
    elif problem == "damaged":
        path.write_text("nothing")
    else:
        artifacts.write_parquet(path, pl.read_parquet(path).drop("baseline").to_arrow())
    with pytest.raises(DataError, match=r"reward/train\.parquet: no readable rows .*--format\.formats reward"):
        fit(inputs, tmp_path / "chooser")


def test_rows_of_other_questions_are_refused(inputs: Inputs, tmp_path: Path) -> None:
    write_rows(tmp_path / "format", "train", range(50, 52))
    with pytest.raises(DataError, match=r"no query for a training question of .*expected some"):
        fit(inputs, tmp_path / "chooser")
