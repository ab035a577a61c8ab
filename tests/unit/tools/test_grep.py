"""Exact words and patterns in one file."""

import json
import time

import pytest
from tool_cases import Pages

from drag_ray.errors import ToolError
from drag_ray.tools import grep as grep_module
from drag_ray.tools.grep import MAX_LINES, TOOL
from drag_ray.tools.workspace import Workspace


def grep(workspace: Workspace, text: str, file: str = "manual.pdf", **options: object) -> list[str]:
    return TOOL.run(TOOL.read_arguments(json.dumps({"file": file, "text": text, **options})), workspace).text.splitlines()


def test_lines_with_the_words_are_found_in_any_case_with_their_pages(workspace: Workspace) -> None:
    heading, *lines = grep(workspace, "rotor SPEED")
    assert heading == "1 line with 'rotor SPEED' in manual.pdf, 4 pages:"
    assert lines == ["manual.pdf#2: ROTOR  speed 340 rpm"]


def test_words_are_no_pattern_unless_they_are_meant_so(workspace: Workspace) -> None:
    assert grep(workspace, "5 % (reserve)")[1:] == ["manual.pdf#2: fuel 5 % (reserve)"]
    assert grep(workspace, "ro.or") == ["No line with 'ro.or' in manual.pdf, 4 pages."]
    assert len(grep(workspace, r"ro.or\b|^fuel", is_pattern=True)) == 1 + 4


def test_of_a_long_line_the_part_around_the_words_is_shown(workspace: Workspace) -> None:
    (line,) = (line for line in grep(workspace, "rotor") if line.startswith("manual.pdf#3"))
    assert line.startswith("manual.pdf#3: …x")
    assert "x rotor y" in line
    assert line.endswith("y…")
    assert len(line) < 300


def test_so_many_lines_are_shown_and_all_are_counted() -> None:
    heading, *lines = grep(Workspace(Pages("rotor\n" * 500, "rotor\n" * 500)), "rotor")
    assert heading.startswith(f"1,000 lines with 'rotor' in manual.pdf, 2 pages, the first {MAX_LINES} are shown")
    assert len(lines) == MAX_LINES


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("(", "unclosed group"),
        ("a(?=b)", "look-around"),
        (r"(a)\1", "backreferences"),
        (r"\w{1,5000}", "more than 50 times"),
        (r"(\w{50}){50}", "size limit"),
        (r"a{2}b{2}c{2}", "more than twice"),
        (" ", "unclosed"),
    ],
)
def test_patterns_that_are_none_or_cost_too_much_are_refused(workspace: Workspace, pattern: str, problem: str) -> None:
    is_pattern = pattern != " "
    with pytest.raises(ToolError, match=problem if is_pattern else "blank"):
        grep(workspace, pattern, is_pattern=is_pattern)


def test_a_pattern_that_makes_other_engines_track_back_takes_no_time() -> None:
    started = time.monotonic()
    assert grep(Workspace(Pages("a" * 15_000 + "!")), r"(a+)+$", is_pattern=True) == [
        "No line with '(a+)+$' in manual.pdf, 1 page.",
    ]
    assert time.monotonic() - started < 5


def test_what_takes_too_long_ends_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grep_module, "_BUDGET_S", 0.0)
    (heading,) = grep(Workspace(Pages("rotor", "rotor")), "rotor")
    assert "it took too long" in heading


def test_an_unknown_file_and_an_endless_text_are_refused(workspace: Workspace) -> None:
    with pytest.raises(ToolError, match="there is no file"):
        grep(workspace, "rotor", file="/etc/passwd")
    with pytest.raises(ToolError, match="at most 200 characters"):
        grep(workspace, "x" * 10**6)


def test_a_file_may_be_named_as_its_pages_are_headed(workspace: Workspace) -> None:
    assert grep(workspace, "rotor SPEED", file="manual.pdf#1")[1:] == ["manual.pdf#2: ROTOR  speed 340 rpm"]
    with pytest.raises(ToolError, match=r"there is no file 'other\.pdf#1'"):
        grep(workspace, "rotor", file="other.pdf#1")


@pytest.mark.parametrize(
    ("text", "is_pattern"),
    [
        ("superintendent", False),
        ("super\u00adintendent", False),
        ("Zürich", False),
        (r"superinten\w+\b", True),
        ("u\u0308r", True),
        ("10⁶", True),
    ],
)
def test_words_that_look_the_same_are_found_and_shown_as_they_stand(text: str, is_pattern: bool) -> None:
    line = "The super\u00adintend\u00adent of Zu\u0308rich, 10⁶"
    assert grep(Workspace(Pages(f"one\n{line}\n106")), text, is_pattern=is_pattern)[1:] == [f"manual.pdf#1: {line}"]


def test_of_a_long_line_the_place_of_another_form_is_shown() -> None:
    (line,) = grep(Workspace(Pages("\u00ad\ufdfax " * 500 + "super\u00adintend\u00adent" + " y" * 500)), "superintendent")[1:]
    assert "x super\u00adintend\u00adent y" in line
