"""The corpora of the examples: manuals of Python packages and the reference of a command line."""

import gzip
import inspect
import json
from pathlib import Path

import numpy as np
import pypdfium2
import pytest

from drag_ray.corpus.readers.pdf import read_pdf
from drag_ray.errors import ConfigError
from drag_ray.examples import commands
from drag_ray.examples.commands import build_commands, read_reference, read_titles
from drag_ray.examples.manual_chapters import render_manual
from drag_ray.examples.manual_entries import ManualEntry, parse_docstring, read_entries
from drag_ray.examples.manuals import build_manuals, compute_groups


def build_entry(name="numpy.f", sentence="Do the thing well.", body="A body.", **fields):
    return ManualEntry(
        **{"package": "numpy", "namespace": "numpy", "name": name, "signature": "f(a)", "sentence": sentence, "body": body}
        | fields
    )


@pytest.mark.parametrize(
    ("documentation", "expected"),
    [
        ("Add it up, e.g. NumPy arrays. More here.\n\nNotes", ("", "Add it up, e.g. NumPy arrays.", "More here.\n\nNotes")),
        ("New in 1.2 of np.dot style. Rest", ("", "New in 1.2 of np.dot style.", "Rest")),
        ("det(a) -> Tensor\n\nComputes it.\n\nArgs", ("det(a) -> Tensor", "Computes it.", "Args")),
        ("f(a,\n  b=(1, 2))\nReturns a pair.\n\nArgs", ("f(a, b=(1, 2))", "Returns a pair.", "Args")),
        ("Wraps\nover :func:`~torch.abs` and ``x``\n\nBody", ("", "Wraps over torch.abs and x", "Body")),
        ("Heading\n-------\ntext", ("", "", "Heading\n-------\ntext")),
        (".. math:: x\n\ntext", ("", "", ".. math:: x\n\ntext")),
    ],
)
def test_the_first_sentence_is_taken_out_of_a_docstring(documentation, expected):
    assert parse_docstring(documentation) == expected


@pytest.fixture(scope="module")
def numpy_entries():
    return {entry.name: entry for entry in read_entries("numpy")}


def test_an_entry_holds_the_docstring_without_its_first_sentence(numpy_entries):
    entry = numpy_entries["numpy.linalg.det"]
    documentation = inspect.cleandoc(np.linalg.det.__doc__ or "")
    assert (entry.namespace, entry.signature, entry.sentence) == (
        "numpy.linalg",
        "det(a)",
        "Compute the determinant of an array.",
    )
    assert entry.body == documentation.removeprefix(entry.sentence).strip()


def test_an_object_is_one_entry_under_its_shortest_name_and_an_unknown_package_is_refused(numpy_entries):
    assert np.lib.scimath.sqrt is not np.sqrt
    assert {"numpy.sqrt", "numpy.lib.scimath.sqrt", "numpy.ndarray.sort"} <= set(numpy_entries)
    assert np.strings.add is np.add
    assert "numpy.add" in numpy_entries
    assert "numpy.strings.add" not in numpy_entries
    assert not any("._" in name or ".core." in name for name in numpy_entries)
    with pytest.raises(ConfigError, match="'no_such_package' cannot be imported"):
        read_entries("no_such_package")


def test_near_duplicates_share_a_group_and_others_do_not():
    body = "Return the sorted values of the given input along the chosen axis with a stable method for every dtype"
    entries = [
        build_entry("numpy.first", "Sort alpha values of something.", body),
        build_entry("numpy.second", "Order beta values of things.", body + " whatever"),
        build_entry(
            "numpy.solve", "Solve a system of equations.", "Uses a factorisation of the matrix and back substitution to find x"
        ),
        build_entry("numpy.linear", "Solve a system of equations!", "Quite another text about linear programs"),
        build_entry("numpy.other.solve", "Something else entirely different.", "Words that nobody else has used so far"),
    ]
    assert compute_groups(entries) == ["numpy.first", "numpy.first", "numpy.solve", "numpy.solve", "numpy.solve"]


def read_words(data):
    document = pypdfium2.PdfDocument(data)
    words = [document[index].get_textpage().get_text_bounded().split() for index in range(len(document))]
    document.close()
    return words


def test_words_survive_rendering_which_is_reproducible_and_cuts_long_entries():
    body = "\n".join(["    indented " + "well-known compound_words " * 12, "plain", "", "naïve ┌──┐ Ω “q”"])
    words = read_words(render_manual([build_entry("numpy.linalg.det", body=body), build_entry("numpy.second")]))
    translated = body.replace("┌──┐", "+--+").replace("Ω", "?").replace("“q”", '"q"')
    assert words[0] == ["numpy.linalg.det", "f(a)", *translated.split()]
    assert words[1][0] == "numpy.second"
    words = read_words(render_manual([build_entry(body="\n".join(f"line{number}" for number in range(1000)))]))
    assert len(words) == 1
    assert words[0][2:130] == [f"line{number}" for number in range(128)]
    assert len(words[0]) < 150
    assert render_manual([build_entry()]) == render_manual([build_entry()])


@pytest.fixture(scope="module")
def manuals_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("manuals")
    build_manuals(folder, ("numpy",), limit_pages=150)
    return folder


def test_questions_point_at_the_pages_of_their_answers(manuals_dir):
    questions = [json.loads(line) for line in (manuals_dir / "questions.jsonl").read_text().splitlines()]
    pages = {}
    for path in manuals_dir.rglob("*.pdf"):
        file = path.relative_to(manuals_dir).as_posix()
        pages |= {(file, page.page_number): page for page in read_pdf(path, file)[0]}
    assert len(pages) == 150
    assert len(questions) > 75
    for question in questions:
        names = [pages[item["file"], item["page_number"]].text.split()[0] for item in question["evidence"]]
        assert names == question["answers"]
        assert question["group"]
    assert len({question["question"] for question in questions}) == len(questions)


def test_a_question_is_not_written_on_its_page(manuals_dir):
    questions = [json.loads(line) for line in (manuals_dir / "questions.jsonl").read_text().splitlines()]
    own = {name: question["question"] for question in questions for name in question["answers"]}
    pages = [page for path in manuals_dir.rglob("*.pdf") for page in read_pdf(path, path.name)[0]]
    texts = {page.text.split()[0]: " ".join(page.text.split()) for page in pages}
    repeated = [name for name, sentence in own.items() if sentence.rstrip(".") in texts[name]]
    assert len(repeated) <= 0.03 * len(own), repeated


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
