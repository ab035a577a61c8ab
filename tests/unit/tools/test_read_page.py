"""Reading a page by its file and number."""

import json

import pytest

from drag_ray.errors import ToolError
from drag_ray.tools.read_page import TOOL
from drag_ray.tools.workspace import Workspace


def read(workspace: Workspace, **arguments: object) -> str:
    return TOOL.run(TOOL.read_arguments(json.dumps(arguments)), workspace).text


def test_the_whole_page_is_read_under_its_name(workspace: Workspace) -> None:
    assert read(workspace, file="manual.pdf", page=4) == "manual.pdf#4 of 4\nThe end."


def test_the_wanted_page_comes_before_its_neighbours_as_far_as_there_are_any(workspace: Workspace) -> None:
    text = read(workspace, file="manual.pdf", page=2, neighbours=3)
    assert [line.split()[0] for line in text.splitlines() if line.startswith("manual")] == [
        *("manual.pdf#2", "manual.pdf#1", "manual.pdf#3", "manual.pdf#4"),
    ]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"file": "manual.pdf", "page": 9}, "no page 9 of 'manual.pdf': it has 4 pages"),
        ({"file": "../../etc/passwd", "page": 1}, "there is no such file"),
        ({"file": "manual.pdf", "page": 0}, "page: Input should be greater than or equal to 1"),
        ({"file": "manual.pdf", "page": 10**40}, "no page 1000"),
        ({"file": "manual.pdf", "page": 1, "neighbours": 10**9}, "neighbours: Input should be less than or equal to 3"),
        ({"file": "manual.pdf", "page": "two"}, "page: Input should be a valid integer"),
        ({"page": 1}, "file: Field required"),
    ],
)
def test_what_cannot_be_read_is_said(workspace: Workspace, arguments: dict[str, object], problem: str) -> None:
    with pytest.raises(ToolError, match=problem):
        read(workspace, **arguments)


def test_a_file_may_be_named_as_its_pages_are_headed(workspace: Workspace) -> None:
    assert read(workspace, file="manual.pdf#2", page=4) == "manual.pdf#4 of 4\nThe end."
    assert read(workspace, file="manual.pdf#1", page=4, neighbours=1).startswith("manual.pdf#4 of 4\nThe end.\n\nmanual.pdf#3")
    with pytest.raises(ToolError, match=r"no page 4 of 'other\.pdf#1': there is no such file"):
        read(workspace, file="other.pdf#1", page=4)


def test_a_number_may_be_written_as_a_text(workspace: Workspace) -> None:
    assert read(workspace, file="manual.pdf", page="4").endswith("The end.")
