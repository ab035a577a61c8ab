"""Sets in V-Retrver's form: candidates become documents, rows become questions, and what cannot be read is set aside."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from drag_ray.cli.main import main
from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.question_images import QuestionImages
from drag_ray.corpus.questions import check_evidence, read_questions
from drag_ray.corpus.readers.document_parts import merge_rows, write_part
from drag_ray.corpus.readers.documents import Span, list_documents, read_document
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.errors import DataError
from drag_ray.recipes.v_retrver.candidate_sets import import_candidate_set
from drag_ray.types import Evidence

TEXT, RED, CAPTIONED = (
    {"candidate_texts": "a rotor"},
    {"candidate_images": "p/red.png"},
    {"candidate_images": "p/red.png", "candidate_texts": "it is red"},
)
BLUE = {"candidate_images": "blue.jpg", "candidate_texts": "it is blue"}


def write_row(qid: str = "8:1", position: Any = 2, hit: Any = (TEXT, CAPTIONED), **extra: Any) -> dict[str, Any]:
    return {"extra_info": {"qid": qid, "query_text": "what turns", "ground_truth_position": position, **extra}, "hit": list(hit)}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    (folder / "p").mkdir(parents=True)
    Image.new("RGB", (40, 20), "red").save(folder / "p" / "red.png")
    Image.new("RGB", (40, 20), "blue").save(folder / "blue.jpg")
    (folder / "broken.png").write_bytes(b"no picture")
    (tmp_path / "outside.png").write_bytes((folder / "p" / "red.png").read_bytes())
    return folder


def convert(source: Path, *rows: Any) -> tuple[Path, dict[str, int]]:
    path = source / "mbeir_cirr_task7_test.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return source.parent / "out", import_candidate_set(path, source.parent / "out")


def read_problems(folder: Path) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in (folder / "problems.jsonl").read_text().splitlines()]
    return [(row["place"].rpartition(":")[2], row["reason"]) for row in rows]


def test_a_set_is_read_as_documents_and_questions_are(source: Path, tmp_path: Path) -> None:
    rows = [
        write_row(),
        write_row("8:2", 1, (BLUE, TEXT, RED), query_text=None, query_image="p/red.png"),
        write_row("8:3", -1, (TEXT, RED)),
    ]
    folder, counts = convert(source, *rows)
    assert counts == {"questions": 3, "candidates": 4, "set_aside": 0}
    store = ImageStore(tmp_path / "images")
    questions, problems = read_questions(
        folder / "questions.jsonl", images=QuestionImages(store, (folder, folder / "documents"), 10_000)
    )
    assert problems == []
    root = folder / "documents"
    paths, others = list_documents(root, folder / "questions.jsonl")
    reader = PageReader(CorpusConfig(ocr="off", page_images=True), store)
    parts = [(tmp_path / f"{number}.parquet", (Span(path),)) for number, path in enumerate(paths)]
    for part, spans in parts:
        write_part(part, spans, lambda span: read_document(span, root, reader))
    table, repeated = merge_rows(pl.read_parquet([part for part, _ in parts]))
    assert (others, repeated) == ([], [])
    pages = {(row["file"], row["page_number"]): row for row in table.to_dicts()}
    kept, lost = check_evidence(questions, pages.keys())
    assert (len(kept), lost) == (3, [])
    shown = [[(pages[p.file, 1]["text"], bool(pages[p.file, 1]["image"])) for p in question.candidates] for question in kept]
    assert shown == [
        [("a rotor", False), ("it is red", True)],
        [("it is blue", True), ("a rotor", False), ("", True)],
        [("a rotor", False), ("", True)],
    ]
    assert [question.question for question in kept] == ["what turns", "", "what turns"]
    assert [len(question.images) for question in kept] == [0, 1, 0]
    assert {question.category for question in kept} == {"mbeir_cirr_task7_test"}
    assert [question.evidence[0] in question.candidates for question in kept] == [True, True, False]
    assert kept[1].evidence == (Evidence("blue.jpg", 1),)


def write_published_row(qid: str, query_image: str | None, texts: list[str], images: list[str]) -> dict[str, Any]:
    """A row with all that V-Retrver's `verl-tool/examples/data_preprocess/pixel_reasoner/prepare_lamra_train.py` writes."""
    shown = [{"image": image} for image in ([query_image] if query_image else []) + images]
    numbered = "".join(f"({place}) <image>{text}" for place, text in enumerate(texts or [""] * len(images), start=1))
    return {
        "data_source": "lamra_rerank",
        "prompt": [
            {"role": "system", "content": "You are a helpful assistant for multimodal retrieval tasks."},
            {"role": "user", "content": f"Query:<image>what turns\nCandidates:{numbered}\n\nGuidelines: ..."},
        ],
        "images": shown,
        "ability": "multimodal_reranking",
        "reward_model": {"style": "rule", "ground_truth": 2},
        "extra_info": {
            "qid": qid,
            "ground_truth_position": 2,
            "num_candidates": max(len(texts), len(images)),
            "query_image": query_image,
            "query_text": "what turns",
            "candidate_images": images,
            "candidate_texts": texts,
            "images": [image["image"] for image in shown],
        },
    }


@pytest.mark.parametrize("has_hits", [False, True], ids=["training", "evaluation"])
def test_rows_with_all_that_the_published_scripts_write_are_read(source: Path, has_hits: bool) -> None:
    rows = [
        write_published_row("8:1", "blue.jpg", ["a", "b"], ["blue.jpg", "p/red.png"]),
        write_published_row("8:2", None, ["a rotor", "a spar"], []),
        write_published_row("8:3", None, [], ["blue.jpg", "p/red.png"]),
    ]
    for row in rows if has_hits else []:
        extra = row["extra_info"]
        texts, images = extra["candidate_texts"] or ["", ""], extra["candidate_images"] or ["", ""]
        pairs = zip(texts, images, strict=True)
        row["hit"] = [{"candidate_texts": text, "candidate_images": image} for text, image in pairs]
    path = source / "mbeir_cirr_task7_test.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    folder = source.parent / "out"
    assert import_candidate_set(path, folder) == {"questions": 3, "candidates": 6, "set_aside": 0}
    questions = [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]
    assert [question["evidence"] == question["candidates"][1:] for question in questions] == [True, True, True]
    assert [question.get("image", "") != "" for question in questions] == [True, False, False]
    assert {question["question"] for question in questions} == {"what turns"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("{", "not JSON"),
        (write_row(position=3), "expected the number of one of 2 candidates"),
        (write_row(position="[1]"), "expected the number of one of 2 candidates"),
        (write_row(qid=""), "column 'qid': got nothing"),
        (write_row(query_text=" "), "neither query_text nor query_image"),
        (write_row(hit=[TEXT, {}]), "candidate 2 has neither a text nor an image"),
        (write_row(hit=[TEXT]), "got 1 candidates"),
        (write_row(hit=["a", "b"]), "column 'hit'"),
        (write_row(hit=[], candidate_texts=["a"], candidate_images=["x", "y"]), "which belong together"),
        (write_row(hit=[TEXT, {"candidate_images": "nowhere.png"}]), "no file 'nowhere.png'"),
        (write_row(hit=[TEXT, {"candidate_images": "../outside.png"}]), "beyond which nothing is read"),
        (write_row(hit=[TEXT, {"candidate_images": "/etc/passwd"}]), "beyond which nothing is read"),
        (write_row(hit=[TEXT, {"candidate_images": "broken.png"}]), "got no picture"),
        (write_row(query_image="https://example.org/a.png"), "no file 'https"),
        (write_row(), "comes again"),
    ],
)
def test_a_bad_row_is_set_aside_with_its_place(source: Path, row: Any, reason: str) -> None:
    folder, counts = convert(source, write_row(), row, write_row("8:9"))
    assert (counts["questions"], counts["set_aside"]) == (2, 1)
    [(place, said)] = read_problems(folder)
    assert place == "2"
    assert reason in said
    assert sorted(path.name for path in (folder / "documents").iterdir()) == ["candidates.jsonl", "p"]


def test_a_set_without_a_row_leaves_nothing_behind_and_no_folder_is_written_over(source: Path) -> None:
    with pytest.raises(DataError, match="not one question with candidates"):
        convert(source, write_row(position=9))
    assert sorted(path.name for path in source.parent.iterdir()) == ["outside.png", "set"]
    convert(source, write_row())
    with pytest.raises(DataError, match="is there already"):
        convert(source, write_row())


def test_the_command_says_how_to_go_on(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (source / "a.jsonl").write_text(json.dumps(write_row()) + "\n{\n")
    run_dir = source.parent / "run"
    assert main(["import", str(source / "a.jsonl"), "--from", "v_retrver", "--run-dir", str(run_dir)]) == 0
    said = capsys.readouterr().out
    assert "import: 1 questions, 2 candidates, 1 set aside (broken_records 1)" in said
    assert f"--corpus.documents {run_dir}/v_retrver/documents" in said
