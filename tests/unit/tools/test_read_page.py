"""Pages of the collection by name and number, and exact words and patterns in one file."""

import json
import time

import pytest
from tool_cases import Pages

from drag_ray.errors import ToolError
from drag_ray.tools import grep as grep_module
from drag_ray.tools import read_page
from drag_ray.tools.grep import MAX_LINES
from drag_ray.tools.workspace import Workspace


def read(workspace: Workspace, **arguments: object) -> str:
    return read_page.TOOL.run(read_page.TOOL.read_arguments(json.dumps(arguments)), workspace).text


def test_pages_are_read_by_name_and_number_with_their_neighbours_also_as_they_are_headed(workspace: Workspace) -> None:
    assert read(workspace, file="manual.pdf", page=4) == "manual.pdf#4 of 4\nThe end."
    assert read(workspace, file="manual.pdf", page="4").endswith("The end.")
    text = read(workspace, file="manual.pdf", page=2, neighbours=3)
    assert [line.split()[0] for line in text.splitlines() if line.startswith("manual")] == [
        *("manual.pdf#2", "manual.pdf#1", "manual.pdf#3", "manual.pdf#4"),
    ]
    assert read(workspace, file="manual.pdf#2", page=4) == "manual.pdf#4 of 4\nThe end."
    assert read(workspace, file="manual.pdf#1", page=4, neighbours=1).startswith("manual.pdf#4 of 4\nThe end.\n\nmanual.pdf#3")
    with pytest.raises(ToolError, match=r"no page 4 of 'other\.pdf#1': there is no such file"):
        read(workspace, file="other.pdf#1", page=4)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"file": "manual.pdf", "page": 9}, "no page 9 of 'manual.pdf': it has 4 pages"),
        ({"file": "../../etc/passwd", "page": 1}, "there is no such file"),
        ({"file": "manual.pdf", "page": 0}, "page: Input should be greater than or equal to 1"),
        ({"file": "manual.pdf", "page": 10**40}, "no page 1000"),
        ({"file": "manual.pdf", "page": 1, "neighbours": 10**9}, "neighbours: Input should be less than or equal to 3"),
    ],
)
def test_what_cannot_be_read_is_said(workspace: Workspace, arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        read(workspace, **arguments)


def grep(workspace: Workspace, text: str, file: str = "manual.pdf", **options: object) -> list[str]:
    return grep_module.TOOL.run(
        grep_module.TOOL.read_arguments(json.dumps({"file": file, "text": text, **options})), workspace
    ).text.splitlines()


def test_lines_with_the_words_are_found_in_any_case_and_words_are_no_pattern_unless_meant_so(workspace: Workspace) -> None:
    heading, *lines = grep(workspace, "rotor SPEED")
    assert heading == "1 line with 'rotor SPEED' in manual.pdf, 4 pages:"
    assert lines == ["manual.pdf#2: ROTOR  speed 340 rpm"]
    assert grep(workspace, "5 % (reserve)")[1:] == ["manual.pdf#2: fuel 5 % (reserve)"]
    assert grep(workspace, "ro.or") == ["No line with 'ro.or' in manual.pdf, 4 pages."]
    assert len(grep(workspace, r"ro.or\b|^fuel", is_pattern=True)) == 1 + 4


def test_of_a_long_line_the_part_around_the_words_is_shown_and_lines_are_counted(workspace: Workspace) -> None:
    (line,) = (line for line in grep(workspace, "rotor") if line.startswith("manual.pdf#3"))
    assert line.startswith("manual.pdf#3: …x")
    assert "x rotor y" in line
    assert line.endswith("y…")
    assert len(line) < 300
    heading, *lines = grep(Workspace(Pages("rotor\n" * 500, "rotor\n" * 500)), "rotor")
    assert heading.startswith(f"1,000 lines with 'rotor' in manual.pdf, 2 pages, the first {MAX_LINES} are shown")
    assert len(lines) == MAX_LINES
    (line,) = grep(Workspace(Pages("\u00ad\ufdfax " * 500 + "super\u00adintend\u00adent" + " y" * 500)), "superintendent")[1:]
    assert "x super\u00adintend\u00adent y" in line


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


def test_what_takes_too_long_ends_and_says_so_and_patterns_that_track_back_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    started = time.monotonic()
    assert grep(Workspace(Pages("a" * 15_000 + "!")), r"(a+)+$", is_pattern=True) == [
        "No line with '(a+)+$' in manual.pdf, 1 page.",
    ]
    assert time.monotonic() - started < 5
    monkeypatch.setattr(grep_module, "_BUDGET_S", 0.0)
    (heading,) = grep(Workspace(Pages("rotor", "rotor")), "rotor")
    assert "it took too long" in heading


def test_an_unknown_file_is_refused_and_one_may_be_named_as_its_pages_are_headed(workspace: Workspace) -> None:
    with pytest.raises(ToolError, match="there is no file"):
        grep(workspace, "rotor", file="/etc/passwd")
    with pytest.raises(ToolError, match="at most 200 characters"):
        grep(workspace, "x" * 10**6)
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
