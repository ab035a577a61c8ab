"""Figures in README.md and docs/ are those of the files in benchmarks/results/."""

import ast
import re
import subprocess
from pathlib import Path

import figure_rankers
import pytest
from figure_cells import RESULTS_DIR, short, to_table
from figure_machines import UNKNOWN, list_machines
from figure_rankers import _write_added
from figures import FIGURES, ROOT, accept_sentences, list_figures, list_files, list_unread, mark_result, write_figures

FILES = [path for path in list_files() if list_figures(path.read_text())]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_figures_are_those_of_the_results(path: Path) -> None:
    text = path.read_text()
    assert write_figures(text) == text, "run: make figures"


def test_every_figure_stands_once() -> None:
    assert sorted(name for path in FILES for name in list_figures(path.read_text())) == sorted(FIGURES)


def test_every_marker_is_read() -> None:
    for path in list_files():
        text = path.read_text()
        without_code = re.sub(r"`[^`\n]*`", "", text)
        num_sentences = len(re.findall(r"^<!-- measured: \w+@[0-9a-f]{8}(?:, \w+@[0-9a-f]{8})* -->$", text, re.MULTILINE))
        assert without_code.count("<!-- measured:") == num_sentences
        assert without_code.count("<!-- figures:") == len(list_figures(text))
        assert without_code.count("<!-- end -->") == len(list_figures(text)) + num_sentences


@pytest.mark.parametrize("path", list_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_sentences_were_read_since_their_results_changed(path: Path) -> None:
    assert list_unread(path.read_text()) == [], (
        "read them beside the results, mend them, then: python benchmarks/figures.py --accept"
    )


def test_every_result_names_the_machine_that_it_was_measured_on() -> None:
    machines = {path.stem: list_machines(path.stem) for path in RESULTS_DIR.glob("*.json")}
    assert {name for name, found in machines.items() if UNKNOWN in found} == {"effect", "learning_curve"}
    assert "1 H200" in machines["equal_terms"][0]


def test_a_result_that_changes_asks_for_its_sentences_to_be_read() -> None:
    mark = mark_result("demo")
    text = f"<!-- measured: {mark}, effect@00000000 -->\n\nIt took 7 s.\n\n<!-- end -->\n"
    assert list_unread(text) == ["effect@00000000"]
    assert accept_sentences(text) == text.replace("effect@00000000", mark_result("effect"))


def test_a_figure_that_was_changed_by_hand_is_written_again() -> None:
    text = (ROOT / "docs" / "benchmarks.md").read_text()
    changed = text.replace("56.8 %", "99.9 %")
    assert changed != text
    assert write_figures(changed) == text


def test_text_around_figures_stays() -> None:
    written = write_figures("a\n<!-- figures: serving -->\n\nold\n\n<!-- end -->\nb 56.8 %\n")
    assert written.startswith("a\n<!-- figures: serving -->\n\n| |")
    assert written.endswith("\n\n<!-- end -->\nb 56.8 %\n")
    assert "old" not in written


def test_cells_become_a_table() -> None:
    assert to_table(["", "a"], [["x", ""]]) == "| | a |\n|---|---|\n| x | |"


@pytest.mark.parametrize(("value", "text"), [(0.298, ".298"), (1.0206, "1.021"), (0.05, ".050")])
def test_numbers_below_one_have_no_zero(value: float, text: str) -> None:
    assert short(value) == text


def test_a_writers_pages_stand_beside_what_as_many_questions_have_taught_without_them() -> None:
    without, added = ({name: [value] * 3 for name in ("hit1", "hit3", "hit10", "mrr")} for value in (0.4, 0.5))
    rankings = {"ce@20": without, "ce_added": added}
    curve = [{"set": name, "train_questions": n, "rankings": rankings} for name, n in (("a", 90), ("a", 360), ("b", 1_350))]
    column = {"set": "a", "train_questions": 900, "rankings": {"ce@20": added}}
    names = ("ce@20", "ce_added")
    assert _write_added(column, curve, names) == ".500 .500 .500 .500 (360 questions, without .400)"
    assert _write_added({**column, "train_questions": 360}, curve, names) == ".500 .500 .500 .500"
    assert _write_added(column, curve, ("reader@20", "reader_added")) == ""


def test_another_start_and_what_learned_the_readers_scores_are_shown_once_they_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    manuals = next(found for found in figure_rankers._find_read_sets() if found["set"] == "manuals")
    ranked = manuals["rankings"]
    distilled = {**ranked["question"], "above_pair": ranked["reader_stacked@20"]["above_pair"]}
    measured = {
        "rankers_mpnet": [{**manuals, "options": {"start": "all-mpnet-base-v2"}}],
        "rankers_manuals": [{**manuals, "rankings": {**ranked, "ce_distilled@20": distilled}}],
    }
    monkeypatch.setattr(figure_rankers, "_find_sets", lambda name: measured.get(name, []))
    rows = [line for line in figure_rankers.write_starts().splitlines() if line.startswith("| manuals")]
    assert [row.split(" | ")[1] for row in rows] == ["all-MiniLM-L6-v2", "all-mpnet-base-v2"]
    [row] = [
        line for line in figure_rankers.write_reader().splitlines() if line.startswith("| a trained cross-encoder, distilled")
    ]
    assert row.endswith(" .350 .522 .680 .463 |")


def test_make_bench_leaves_out_the_benchmarks_that_have_to_be_told_something() -> None:
    done = subprocess.run(["make", "--dry-run", "bench"], cwd=ROOT, capture_output=True, text=True, check=True)
    started = set(re.findall(r"benchmarks/(bench_\w+\.py)", done.stdout))
    told = {"bench_effect.py", "bench_learning_curve.py"}  # they only write what is there again, unless told what to read
    paths = (ROOT / "benchmarks").glob("bench_*.py")
    needs = {path.name: path.name in told or any(map(is_needed, ast.walk(ast.parse(path.read_text())))) for path in paths}
    assert started == {name for name, has_to_be_told in needs.items() if not has_to_be_told}
    assert needs["bench_ablation.py"]  # a positional argument


def is_needed(node: ast.AST) -> bool:
    """Tell whether this is the call that declares an argument which the command line has to hold."""
    declaring = ("add_argument", "add_subparsers", "add_mutually_exclusive_group")
    if not isinstance(node, ast.Call) or getattr(node.func, "attr", "") not in declaring:
        return False
    given = {keyword.arg: keyword.value.value for keyword in node.keywords if isinstance(keyword.value, ast.Constant)}
    name = node.args[0].value if node.args and isinstance(node.args[0], ast.Constant) else "-"
    return bool(given.get("required")) or (not str(name).startswith("-") and given.get("nargs") not in ("*", "?"))
