"""The embedded collection: the reference of a command line."""

import gzip
import json
from pathlib import Path

import pypdfium2
import pytest

from drag_ray.corpus.readers.pdf import read_pdf
from drag_ray.errors import ConfigError
from drag_ray.examples import commands
from drag_ray.examples.commands import Entry, build_commands, read_reference, read_titles, render_chapter


def build_entry(name="numpy.f", body="A body."):
    return Entry("numpy", name, "f(a)", body)


def read_words(data):
    document = pypdfium2.PdfDocument(data)
    words = [document[index].get_textpage().get_text_bounded().split() for index in range(len(document))]
    document.close()
    return words


def test_words_survive_rendering_which_is_reproducible_and_cuts_long_entries():
    body = "\n".join(["    indented " + "well-known compound_words " * 12, "plain", "", "naïve ┌──┐ Ω “q”"])
    words = read_words(render_chapter([build_entry("numpy.linalg.det", body=body), build_entry("numpy.second")]))
    translated = body.replace("┌──┐", "+--+").replace("Ω", "?").replace("“q”", '"q"')
    assert words[0] == ["numpy.linalg.det", "f(a)", *translated.split()]
    assert words[1][0] == "numpy.second"
    words = read_words(render_chapter([build_entry(body="\n".join(f"line{number}" for number in range(1000)))]))
    assert len(words) == 1
    assert words[0][2:130] == [f"line{number}" for number in range(128)]
    assert len(words[0]) < 150
    assert render_chapter([build_entry()]) == render_chapter([build_entry()])


def test_titles_are_the_bold_lines_without_their_numbers():
    example = (
        "**Example 1: To list the ``running`` jobs**\n\nThe following **bold** word. ::\n\n    aws x list-jobs\n\n"
        "**To stop a job.**\n\n**To go\non**\n"
    )
    assert read_titles(example) == ["To list the running jobs", "To stop a job"]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service `lamp` in two versions, with examples, and one without any."""
    old = {"metadata": {"serviceId": "Old"}, "operations": {}, "shapes": {}}
    documentation = {"DescribeLamps": "Describes <code>lamps</code> &amp; bulbs.", "DeleteLamp": "Deletes a lamp."}
    new = {
        "metadata": {"serviceId": "Lamp", "serviceFullName": "Amazon Lamp Service"},
        "operations": {
            name: {"name": name, "documentation": f"<p>{text}</p>", "input": {"shape": "LampRequest"}}
            for name, text in documentation.items()
        },
        "shapes": {"LampRequest": {"members": {"LampId": {"shape": "Id", "documentation": "<p>Its <b>id</b>.</p>"}}}},
    }
    for service, version, model in (("lamp", "2014-01-01", old), ("lamp", "2016-01-01", new), ("dark", "2016-01-01", new)):
        folder = tmp_path / "botocore" / "data" / service / version
        folder.mkdir(parents=True)
        (folder / "service-2.json.gz").write_bytes(gzip.compress(json.dumps(model).encode()))
    examples = tmp_path / "awscli" / "examples"
    for name, text in {
        "lamp/describe-lamps.rst": "\n\n".join(
            ["**To see all lamps**", "**To see describe-lamps at work**", "**Short title**", "**To tidy up here**"]
        ),
        "lamp/delete-lamp.rst": "**To throw a lamp away**\n\n**To tidy up here**",
        "lamp/wait.rst": "**To wait for a lamp**",
        "elsewhere/run.rst": "**To run a job there**",
    }.items():
        (examples / name).parent.mkdir(parents=True, exist_ok=True)
        (examples / name).write_text(text)
    monkeypatch.setattr(commands, "_locate", lambda package: tmp_path / package)
    return tmp_path


def test_a_page_is_a_command_and_a_question_a_task_that_does_not_name_it(packages: Path, tmp_path: Path):
    build_commands(tmp_path / "documents")
    [path] = (tmp_path / "documents").glob("*.pdf")
    texts = [page.text for page in read_pdf(path, path.name)[0]]
    assert [" ".join(text.split()) for text in texts] == [
        "aws lamp delete-lamp Lamp: Amazon Lamp Service Deletes a lamp. --lamp-id: Its id .",
        "aws lamp describe-lamps Lamp: Amazon Lamp Service Describes lamps & bulbs. --lamp-id: Its id .",
    ]
    rows = [json.loads(line) for line in (tmp_path / "documents" / "questions.jsonl").read_text().splitlines()]
    assert {row["question"]: [page["page_number"] for page in row["evidence"]] for row in rows} == {
        "To throw a lamp away (Lamp)": [1],
        "To tidy up here (Lamp)": [1, 2],
        "To see all lamps (Lamp)": [2],
    }
    assert len({row["id"] for row in rows}) == len(rows)


def test_a_limit_leaves_out_the_questions_of_the_pages_that_are_not_there(packages: Path, tmp_path: Path):
    build_commands(tmp_path / "documents", limit_pages=1)
    rows = [json.loads(line) for line in (tmp_path / "documents" / "questions.jsonl").read_text().splitlines()]
    assert [row["question"] for row in rows] == ["To throw a lamp away (Lamp)"]


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(commands.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="the package awscli is not installed"):
        read_reference()


@pytest.mark.seconds
def test_the_installed_reference_has_thousands_of_tasks_in_words_of_their_own():
    commands, tasks = read_reference()
    names = {entry.name for entry in commands}
    assert len(names) == len(commands) > 10_000
    assert len(tasks) > 6_000
    assert all(task.command in names for task in tasks)
    verbs = [(task.text.split()[1:2], task.command.split()[-1].split("-")[0]) for task in tasks]
    assert sum(verb != [of_command] for verb, of_command in verbs) / len(verbs) > 0.25
