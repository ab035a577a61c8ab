import json
import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drag_ray import schemas
from drag_ray.corpus.questions import check_evidence, draw_questions, read_questions, select_questions
from drag_ray.errors import DataError
from drag_ray.types import Evidence, Question

SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"
TWO_PAGES = (Evidence("a.pdf", 3), Evidence("b.pdf", 1))


def read_one(tmp_path, record):
    path = tmp_path / "questions.jsonl"
    path.write_text(json.dumps(record) + "\n")
    questions, problems = read_questions(path)
    assert problems == []
    return questions[0]


@pytest.mark.parametrize(
    "evidence",
    [
        {"evidence": [{"file": "a.pdf", "page_number": 3}, {"file": "b.pdf", "page_number": 1}]},
        {"evidence": [{"document": "a.pdf", "page": 3}, {"document": "b.pdf", "page": 1}]},
        {"answer_locations": ["a.pdf:3", "b.pdf:1", "a.pdf:3"]},
        {"answer_locations": [{"document": "a.pdf", "page": 3}, {"file": "b.pdf", "page": 1}]},
        {"gold": [["a.pdf", 3], ["b.pdf", 1]], "file": "a.pdf", "page": 3},
    ],
)
def test_all_evidence_counts_in_every_spelling(tmp_path, evidence):
    assert read_one(tmp_path, {"id": "q", "question": "How?", **evidence}).evidence == TWO_PAGES


def test_a_plain_file_and_page_is_evidence(tmp_path):
    assert read_one(tmp_path, {"id": 7, "question": "How?", "file": "a.pdf", "page": 3}) == Question("7", "How?", TWO_PAGES[:1])


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"answers": ["842", 5]}, ("842", "5")),
        ({"answers": "842"}, ("842",)),
        ({"answer_variants": [["red", "blue"], ["crimson"]]}, ("red, blue", "crimson")),
        ({"answers": None}, ()),
        ({"answers": float("nan")}, ()),
        ({"answers": ["90 km/h", float("nan"), None, [None], ["a", float("nan")]]}, ("90 km/h", "a")),
        ({"answers": "nan"}, ("nan",)),
    ],
)
def test_answers_in_every_spelling(tmp_path, answers, expected):
    assert read_one(tmp_path, {"id": "q", "question": "How?", "gold": [["a.pdf", 3]], **answers}).answers == expected


@pytest.mark.parametrize(("given", "expected"), [("dev", "test"), ("Validation", "test"), ("eval", "test"), ("train", "train")])
def test_split_names_are_mapped(tmp_path, given, expected):
    assert read_one(tmp_path, {"id": "q", "question": "How?", "gold": [["a.pdf", 3]], "split": given}).split == expected


def test_madqa_rows_are_read_from_parquet(tmp_path):
    table = pa.table(
        {
            "id": ["m1"],
            "question": ["What colour?"],
            "answer_variants": [[["red"], ["crimson"]]],
            "evidence": [[{"document": "a.pdf", "page": 3}, {"document": "b.pdf", "page": 1}]],
            "document_category": ["Report"],
            "domain": ["Art"],
        }
    )
    pq.write_table(table, tmp_path / "q.parquet")
    assert read_questions(tmp_path / "q.parquet") == (
        [Question("m1", "What colour?", TWO_PAGES, ("red", "crimson"), "Report")],
        [],
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"question": " "}, "column 'question': got nothing"),
        ({"question": 5}, "column 'question': got 5 (int), expected text"),
        ({"id": None}, "column 'id': got nothing"),
        ({"gold": []}, "column 'gold': got no evidence page"),
        ({"gold": None}, "column 'evidence': got no evidence page"),
        ({"gold": [["a.pdf", -1]]}, "column 'gold.page': got -1 (int), expected a whole number from 1"),
        ({"gold": ["a.pdf"]}, "column 'gold': got 'a.pdf'"),
        ({"gold": "a.pdf:3"}, "expected a list of pages"),
        ({"answers": [{"a": 1}]}, "column 'answers': got {'a': 1} (dict), expected text"),
        ({"split": "holdout"}, "column 'split': got 'holdout', expected one of train"),
        ({"id": "good"}, "id 'good' comes again"),
        ({"id": "good\ud800"}, "column 'id': got 'good\\ud800', expected text without NULs and halves of surrogate pairs"),
        ({"group": "\udfff"}, "column 'group': got '\\udfff', expected text without NULs"),
        ({"gold": [["a\0.pdf", 3]]}, "column 'file': got 'a\\x00.pdf', expected text without NULs"),
        ({"gold": [["a.pdf", "3" * 5_000]]}, "Exceeds the limit (4300 digits)"),
        ({"answers": [[[1]]]}, "column 'answers': got [1] (list), expected text"),
    ],
)
def test_a_bad_question_is_set_aside_with_its_place(tmp_path, change, reason):
    good = {"id": "good", "question": "How?", "gold": [["a.pdf", 3]]}
    path = tmp_path / "questions.jsonl"
    path.write_text(f"{json.dumps(good)}\n{json.dumps({**good, 'id': 'other', **change})}\n")
    questions, problems = read_questions(path)
    assert [question.id for question in questions] == ["good"]
    assert problems[0].place == f"{path}:2"
    assert reason in problems[0].reason


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_columns_of_which_nothing_is_made_are_named(tmp_path, caplog, suffix):
    caplog.set_level("INFO", logger="drag_ray")
    rows = [{"id": f"q{number}", "question": "How?", "gold": ["a.pdf:3"], "image_path": "a.png"} for number in range(2)]
    path = tmp_path / f"questions.{suffix}"
    pq.write_table(pa.Table.from_pylist(rows), path) if suffix == "parquet" else path.write_text("\n".join(map(json.dumps, rows)))
    questions, problems = read_questions(path)
    assert (len(questions), problems) == (2, [])
    assert [record.message for record in caplog.records] == [
        f"{path}: ignored columns: 'image_path'; rename those that should be read (docs/documents.md)"
    ]


def test_columns_that_are_read_are_not_spoken_of_and_texts_lose_what_no_table_holds(tmp_path, caplog):
    caplog.set_level("INFO", logger="drag_ray")
    of_the_stage = {"style": "curt", "path": [{"file": "a.pdf"}], "plain_question": "How is it?"}
    row = {"id": "q", "question": "How?", "gold": [["a.pdf", 3]], "split": "train", "group": None, "source": None}
    read_one(tmp_path, row | of_the_stage)
    assert not caplog.records
    texts = {"question": "Ho\ud800w?", "answers": ["8\ud8004\0", ["a\udfff", "b"]], "category": "\udc80c"}
    question = read_one(tmp_path, {"id": "q", "gold": [["a.pdf", 3]], **texts})
    assert question == Question("q", "How?", TWO_PAGES[:1], ("84", "a, b"), "c")
    schemas.to_table([question], schemas.QUESTIONS)


def test_absent_evidence_is_dropped_and_questions_without_any_are_taken_where_allowed(tmp_path):
    both, none = Question("both", "How?", TWO_PAGES), Question("none", "Why?", TWO_PAGES[1:])
    kept, problems = check_evidence([both, none], {("a.pdf", 3)})
    assert [(question.id, question.evidence) for question in kept] == [("both", TWO_PAGES[:1])]
    assert [problem.place for problem in problems] == ["question both", "question none"]
    assert "1 of 1 evidence pages are not in the corpus (page 1 of 'b.pdf')" in problems[1].reason
    path = tmp_path / "questions.jsonl"
    path.write_text('{"id": "a", "question": "How?", "gold": []}\n{"id": "b", "question": "Why?"}\n')
    assert [problem.place for problem in read_questions(path)[1]] == [f"{path}:1", f"{path}:2"]
    questions, problems = read_questions(path, allow_unanswerable=True)
    assert ([question.id for question in questions], problems) == (["a", "b"], [])
    assert check_evidence(questions, set()) == (questions, [])


def test_not_a_number_is_an_empty_cell_in_every_column(tmp_path):
    nan = float("nan")
    row = {
        "id": "q",
        "question": "How?",
        "evidence": nan,
        "gold": [nan, ["a.pdf", 3]],
        "category": nan,
        "group": nan,
        "split": nan,
    }
    question = read_one(tmp_path, {**row, "image": nan, "candidates": [{"file": "a.pdf", "page_number": 3.0, "page": nan}, nan]})
    assert question == Question("q", "How?", TWO_PAGES[:1], candidates=TWO_PAGES[:1])
    table = pa.table(
        {"id": ["q", "r"], "question": ["How?", "Why?"], "answers": [nan, 2.5], "page": [3.0, nan], "file": ["a.pdf"] * 2}
    )
    pq.write_table(table, tmp_path / "questions.parquet")
    questions, problems = read_questions(tmp_path / "questions.parquet")
    assert questions == [Question("q", "How?", TWO_PAGES[:1])]
    assert "got None" in problems[0].reason


@pytest.mark.parametrize("zero", [0, "0", 0.0, "0.0"])
def test_a_file_that_counts_its_pages_from_zero_is_refused(tmp_path, zero):
    path = tmp_path / "questions.jsonl"
    rows = [{"id": f"q{page}", "question": "How?", "gold": [["a.pdf", page]]} for page in (5, zero, 1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match=r"page 0 in 1 records, first at .*:2. Pages are counted from 1; .*Add 1 to every page"):
        read_questions(path)


@pytest.mark.parametrize("name", ["Übersicht.txt", "./Übersicht.txt", "Übersicht.\u00adtxt", ".\\Übersicht.txt"])
def test_a_file_is_found_by_a_name_that_looks_the_same(name):
    file = unicodedata.normalize("NFD", "Übersicht.txt")
    question = Question("q", "How?", (Evidence(name, 1), Evidence(file, 1)), candidates=(Evidence(name, 1),))
    kept, problems = check_evidence([question], {(file, 1), ("other.txt", 1)})
    assert [(item.evidence, item.candidates) for item in kept] == [((Evidence(file, 1),), (Evidence(file, 1),))]
    assert problems == []


def test_of_names_that_look_the_same_the_exact_one_counts_and_no_other_is_guessed():
    composed, decomposed = (unicodedata.normalize(form, "Übersicht.txt") for form in ("NFC", "NFD"))
    pages = {(composed, 1), (decomposed, 1), ("folder/x.txt", 1)}
    exact, ambiguous = Question("a", "?", (Evidence(decomposed, 1),)), Question("b", "?", (Evidence(f"./{composed}", 1),))
    kept, problems = check_evidence([exact, ambiguous], pages)
    assert kept == [exact]
    assert "did you mean" in problems[0].reason


@pytest.mark.parametrize(
    "name", ["übersicht.txt", "Übersicht", "Übersicht.pdf", "texts/Übersicht.txt", "C:\\texts\\Übersicht.txt", "Ubersicht.txt"]
)
def test_a_file_that_may_be_meant_is_named(name):
    kept, problems = check_evidence([Question("q", "How?", (Evidence(name, 1),))], {("Übersicht.txt", 1), ("other.txt", 1)})
    assert kept == []
    assert "(did you mean 'Übersicht.txt'?)" in problems[0].reason


def test_a_drawn_subset_depends_on_the_seed_alone():
    questions = [Question(str(number), "How?", TWO_PAGES) for number in range(100)]
    drawn = draw_questions(questions, 20, seed=1)
    assert len(drawn) == 20
    assert set(drawn) == set(draw_questions(questions[::-1], 20, seed=1))
    assert drawn != draw_questions(questions, 20, seed=2)
    assert draw_questions(questions, 0, seed=1) == questions


@pytest.mark.shared
@pytest.mark.parametrize("name", ["fairytaleqa", "financebench", "medquad", "ohr_bench", "squad_v1_dev", "wiki_pdf"])
def test_public_sets_are_read_whole(name):
    path = SHARED / name / "questions.jsonl"
    if not path.exists():
        pytest.skip(f"{path} is absent: the public question sets are not part of the project")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    questions, problems = read_questions(path)
    assert [question.id for question in questions] == list(dict.fromkeys(row["id"] for row in rows))
    assert len(questions) + len(problems) == len(rows)
    assert [len(question.evidence) for question in questions[:50]] == [len(row["gold"]) for row in rows[:50]]


def test_files_of_ids_say_which_questions_are_taken(tmp_path, caplog):
    questions = [Question(id, "How?", TWO_PAGES) for id in ("a", "b", "c d")]
    for name, text in {"two": "c d\r\n\n a\n", "one": "\ufeffa\nelsewhere\n", "odd": "a\nx\ny\n"}.items():
        (tmp_path / name).write_text(text)
    two, one, odd = (str(tmp_path / name) for name in ("two", "one", "odd"))

    def select(include="", exclude=""):
        return [question.id for question in select_questions(questions, include, exclude)]

    assert select() == ["a", "b", "c d"]
    assert select(two) == ["a", "c d"]
    with caplog.at_level("INFO"):
        assert select(two, one) == ["c d"]
    assert "leaves out 1 questions; 1 ids are unknown" in caplog.text
    with pytest.raises(DataError, match=r"odd: 2 of 3 ids are none of the 3 training questions, as x, y\. Take them out"):
        select(odd)
    with pytest.raises(DataError, match=r"two: leaves none of 3 training questions"):
        select(two, two)
    with pytest.raises(DataError, match=r"nowhere: expected a file with the id of a question a line"):
        select(str(tmp_path / "nowhere"))
