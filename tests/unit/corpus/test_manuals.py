import inspect
import json

import numpy as np
import pypdfium2
import pytest

from drag_ray.corpus.readers.pdf import read_pdf
from drag_ray.errors import ConfigError
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


def test_an_object_is_one_entry_under_its_shortest_name(numpy_entries):
    assert np.lib.scimath.sqrt is not np.sqrt
    assert {"numpy.sqrt", "numpy.lib.scimath.sqrt", "numpy.ndarray.sort"} <= set(numpy_entries)
    assert np.strings.add is np.add
    assert "numpy.add" in numpy_entries
    assert "numpy.strings.add" not in numpy_entries
    assert not any("._" in name or ".core." in name for name in numpy_entries)


def test_an_unknown_package_is_a_configuration_error():
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


def test_words_survive_rendering_also_where_lines_wrap():
    body = "\n".join(["    indented " + "well-known compound_words " * 12, "plain", "", "naïve ┌──┐ Ω “q”"])
    words = read_words(render_manual([build_entry("numpy.linalg.det", body=body), build_entry("numpy.second")]))
    translated = body.replace("┌──┐", "+--+").replace("Ω", "?").replace("“q”", '"q"')
    assert words[0] == ["numpy.linalg.det", "f(a)", *translated.split()]
    assert words[1][0] == "numpy.second"


def test_a_long_entry_shrinks_and_is_cut_at_the_end_of_its_page():
    words = read_words(render_manual([build_entry(body="\n".join(f"line{number}" for number in range(1000)))]))
    assert len(words) == 1
    assert words[0][2:130] == [f"line{number}" for number in range(128)]
    assert len(words[0]) < 150


def test_rendering_is_reproducible():
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
