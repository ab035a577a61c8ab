"""The index stage on a local Ray, over documents of which some are broken."""

import json
from types import SimpleNamespace

import pytest
from reportlab.pdfgen.canvas import Canvas

from drag_ray import artifacts, schemas
from drag_ray.cluster import ClusterConfig, connect
from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.stage import run
from drag_ray.errors import ConfigError, DataError
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import read_record


@pytest.fixture(scope="module", autouse=True)
def local_ray():
    with connect(ClusterConfig(num_cpus=2, dashboard_port=8392)):
        yield


@pytest.fixture
def documents_dir(tmp_path):
    folder = tmp_path / "documents"
    folder.mkdir()
    canvas = Canvas(str(folder / "wing.pdf"))
    for text in ("Wing spar loads", ""):
        canvas.drawString(72, 700, text)
        canvas.showPage()
    canvas.save()
    (folder / "broken.pdf").write_bytes((folder / "wing.pdf").read_bytes()[:300])
    lines = [
        '{"file": "rotor", "page": 1, "text": "Rotor speed"}',
        "{half a line",
        '{"file": "rotor", "page": 1, "text": "again"}',
    ]
    (folder / "pages.jsonl").write_text("\n".join(lines))
    return folder


def run_stage(tmp_path, **options):
    identity = artifacts.Identity("index", {}, {}, "test")
    config = SimpleNamespace(corpus=CorpusConfig(**options), search=SearchConfig())
    with artifacts.StageFolder(tmp_path / "run" / "index", identity) as folder:
        return run(config, folder), folder.path


def test_pages_questions_and_index_are_written_and_the_broken_rest_is_counted(tmp_path, documents_dir):
    evidence = {"q1": [["rotor", 1]], "q2": [["wing.pdf", 1], ["lost.pdf", 1]], "q3": [["lost.pdf", 1]]}
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps({"id": i, "question": i, "gold": gold}) + "\n" for i, gold in evidence.items()))
    counts, folder = run_stage(tmp_path, documents=str(documents_dir), questions=str(questions), test_fraction=0.5)
    assert counts == {
        "documents": 3,
        "pages": 3,
        "pages_by_ocr": 0,
        "pages_without_text": 1,
        "questions": 2,
        "train": 1,
        "test": 1,
        "set_aside": 5,
    }
    pages = schemas.read_table(folder / "pages.parquet", schemas.PAGES).to_pylist()
    assert [(page["file"], page["page_number"], page["text"]) for page in pages] == [
        ("rotor", 1, "Rotor speed"),
        ("wing.pdf", 1, "Wing spar loads"),
        ("wing.pdf", 2, ""),
    ]
    kept = schemas.read_table(folder / "questions.parquet", schemas.QUESTIONS).to_pylist()
    assert [(row["id"], len(row["evidence"])) for row in kept] == [("q1", 1), ("q2", 1)]
    places = [json.loads(line)["place"].rpartition("/")[2] for line in (folder / "problems.jsonl").read_text().splitlines()]
    assert places == ["pages.jsonl:2", "pages.jsonl:3", "broken.pdf", "question q2", "question q3"]
    assert read_record(folder / "search_index").num_pages == 3


def test_manuals_need_no_input(tmp_path):
    counts, _ = run_stage(tmp_path, manual_packages=("numpy",), limit_pages=40, limit_questions=10)
    assert (counts["pages"], counts["questions"], counts["train"], counts["test"]) == (40, 10, 7, 3)


def test_documents_without_a_readable_page_are_an_error(tmp_path, documents_dir):
    with pytest.raises(DataError, match=r"1 documents, but no page could be read\. First problem: .*broken\.pdf"):
        run_stage(tmp_path, documents=str(documents_dir / "broken.pdf"), questions="")


def test_own_documents_need_own_questions(tmp_path, documents_dir):
    with pytest.raises(ConfigError, match=r"corpus\.questions is 'manuals'"):
        run_stage(tmp_path, documents=str(documents_dir))
