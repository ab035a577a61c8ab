"""Kinds and styles of written questions: one that misleads a ranker is left out, and none is left out by chance."""

import json
import shlex
from pathlib import Path

import pytest
from factories import build_page
from small_index import finish_index

from drag_ray.cli.main import main
from drag_ray.errors import DataError
from drag_ray.evaluate.question_mix import MixWorth, compare_parts, format_worth, list_parts
from drag_ray.search.searcher import Searcher
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Evidence, Question

NUM_WRITTEN, NUM_ASKED = 160, 40


def ask(number: int, page: int, category: str = "", split: str = "") -> Question:
    """A question about a document, of whose two pages the second says how it is solved."""
    return Question(f"{category}{number}", f"what of t{number}", (Evidence(f"{number}.md", page),), ("x",), category, split=split)


def write(page_of_procedures: int) -> list[Question]:
    kinds = ["fact", "procedure", "procedure", "procedure"] * (NUM_WRITTEN // 4)
    return [ask(n, page_of_procedures if kind == "procedure" else 2, f"written_{kind}") for n, kind in enumerate(kinds)]


def compare(written: list[Question], searcher: Searcher) -> MixWorth:
    return compare_parts(written, {one.id: list_parts(one) for one in written}, ASKED, searcher)


ASKED = [ask(number, 2, split="train") for number in range(NUM_WRITTEN, NUM_WRITTEN + NUM_ASKED)]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    texts = ("t{0} t{0} t{0} list of menus", "solved by turning a knob after t{0} was seen by somebody")
    pages = [
        build_page(file=f"{number}.md", page_number=place, text=text.format(number))
        for number in range(NUM_WRITTEN + NUM_ASKED)
        for place, text in enumerate(texts, start=1)
    ]
    finish_index(folder, pages, ASKED)
    return folder


@pytest.fixture(scope="module")
def searcher(run_dir: Path) -> Searcher:
    return Searcher(run_dir / "index" / "search_index")


@pytest.mark.seconds
def test_a_kind_that_misleads_is_left_out(searcher: Searcher) -> None:
    worth = compare(write(1), searcher)
    assert (worth.num_asked, worth.num_learned) == (NUM_ASKED, 4 * (NUM_WRITTEN // 4) // 5)
    found = {one.part[1]: one for one in worth.parts}
    assert found["procedure"].is_worse
    assert not found["fact"].is_worse
    assert (found["procedure"].interval or (0, 0))[0] > 0.3
    assert found["procedure"].mrr == 1 > worth.mrr
    assert format_worth(worth).splitlines()[-1] == """Better without procedure: --questions.kinds '["fact"]'"""


@pytest.mark.seconds
def test_no_kind_is_left_out_where_all_teach_the_same(searcher: Searcher) -> None:
    worth = compare(write(2), searcher)
    assert [(one.gain, one.p_value, one.is_worse) for one in worth.parts] == [(0, 1, False)] * 2
    assert format_worth(worth).endswith("The mix is not significantly better without any of them: keep it.")


def test_one_kind_or_too_few_questions_are_said(searcher: Searcher) -> None:
    with pytest.raises(DataError, match="of 1 kinds and styles over documents that no real question is about"):
        compare(write(2)[:1], searcher)
    with pytest.raises(DataError, match="teach nothing"):
        compare(write(2)[:8], searcher)


@pytest.mark.seconds
def test_a_style_that_misleads_is_left_out_whatever_its_kind(searcher: Searcher) -> None:
    """Three quarters of the questions of each kind mislead, all those in that style."""
    kinds = ("written_fact", "written_user")
    written = [ask(number, 1 if number % 4 else 2, kinds[number // 4 % 2]) for number in range(NUM_WRITTEN)]
    parts = {one.id: list_parts(one, "it's a joke" if number % 4 else "a nurse") for number, one in enumerate(written)}
    worth = compare_parts(written, parts, ASKED, searcher)
    assert {one.part for one in worth.parts if one.is_worse} == {("styles", "it's a joke")}
    assert len(worth.parts) == 4
    option = format_worth(worth).splitlines()[-1].partition(": ")[2]
    assert shlex.split(option) == ["--questions.styles", '["a nurse"]']


@pytest.mark.seconds
def test_the_command_asks_real_questions_of_other_documents(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = [*write(1), ask(NUM_WRITTEN, 2, "written_user")]  # of a document that a real question is about
    rows = [
        {
            **{"id": one.id, "question": one.question, "answer": "x", "category": one.category, "style": "as users ask"},
            "evidence": [{"file": one.evidence[0].file, "page_number": one.evidence[0].page_number}],
        }
        for one in written
    ]
    with StageFolder(run_dir / "questions", Identity("questions", {}, {})) as folder:
        artifacts.write_jsonl(folder.path / "questions.jsonl", rows)
        folder.finish({})
    assert main(["kinds", str(run_dir)]) == 0
    told = capsys.readouterr().out
    assert "40 real questions; `features` learn from 32 written ones, 5 draws of a mix" in told.splitlines()
    assert told.splitlines()[-2:] == [
        "Not measured, all their questions are about documents of real questions: user",
        """Better without procedure: --questions.kinds '["fact", "user"]'""",
    ]
    (run_dir / "few.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:3]))
    assert main(["kinds", str(run_dir), "--real", str(run_dir / "few.jsonl")]) == 1
    assert "3 real questions with evidence, 30 are needed" in capsys.readouterr().err
