"""The index stage on a local Ray, over documents of which some are broken."""

import json
import os
from types import SimpleNamespace

import pytest
from PIL import Image, ImageDraw, ImageFont
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas

from drag_ray import artifacts, schemas
from drag_ray.cluster import ClusterConfig, connect
from drag_ray.corpus import stage
from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.page_images import PageImages
from drag_ray.corpus.page_reader import PageReader
from drag_ray.errors import ConfigError, DataError
from drag_ray.search.config import SearchConfig
from drag_ray.search.index import read_record


@pytest.fixture(scope="module", autouse=True)
def local_ray():
    with connect(ClusterConfig(num_cpus=2)):
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
        return stage.run(config, folder), folder.path


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


def scan(text):
    """A picture of a page with one line of text."""
    page = Image.new("RGB", (480, 300), "white")
    ImageDraw.Draw(page).text((20, 130), text, fill="black", font=ImageFont.load_default(size=28))
    return page


def read_rows(folder):
    return schemas.read_table(folder / "pages.parquet", schemas.PAGES).to_pylist()


def test_scans_are_read_by_ocr_and_every_page_has_its_picture(tmp_path):
    folder = tmp_path / "documents"
    folder.mkdir()
    canvas = Canvas(str(folder / "a.pdf"), pagesize=(480, 300))
    canvas.drawString(72, 100, "Wing spar loads " * 3)
    canvas.showPage()
    canvas.drawImage(ImageReader(scan("Tail rotor torque")), 0, 0, 480, 300)
    canvas.save()
    scan("Fuel valve").save(folder / "b.tif", save_all=True, append_images=[scan("Oil filter")], compression="tiff_lzw")
    (folder / "c.png").write_text("no picture")
    counts, path = run_stage(tmp_path, documents=str(folder), questions="", page_images=True, ocr_min_chars=20)
    assert {name: counts[name] for name in ("documents", "pages", "pages_by_ocr", "pages_without_text", "set_aside")} == {
        "documents": 3,
        "pages": 4,
        "pages_by_ocr": 3,
        "pages_without_text": 0,
        "set_aside": 1,
    }
    rows = read_rows(path)
    assert [(row["file"], row["page_number"], row["text"], row["text_source"]) for row in rows] == [
        ("a.pdf", 1, "Wing spar loads Wing spar loads Wing spar loads", "text_layer"),
        ("a.pdf", 2, "Tail rotor torque", "ocr"),
        ("b.tif", 1, "Fuel valve", "ocr"),
        ("b.tif", 2, "Oil filter", "ocr"),
    ]
    images = PageImages(path / "page_images")
    assert [images.open(row["image"]).width for row in rows] == pytest.approx([1000, 1000, 480, 480], abs=1)


def test_a_stage_that_is_started_again_keeps_the_parts_that_it_has(tmp_path, documents_dir, monkeypatch):
    def fail(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(stage, "build_index", fail)
    with pytest.raises(KeyboardInterrupt):
        run_stage(tmp_path, documents=str(documents_dir), questions="")
    parts_dir = tmp_path / "run" / "index" / "parts"
    (kept,) = parts_dir.iterdir()
    written_ns = kept.stat().st_mtime_ns
    with pytest.raises(KeyboardInterrupt):
        run_stage(tmp_path, documents=str(documents_dir), questions="")
    assert kept.stat().st_mtime_ns == written_ns
    monkeypatch.undo()
    counts, path = run_stage(tmp_path, documents=str(documents_dir), questions="")
    assert (counts["pages"], counts["set_aside"]) == (3, 3)
    assert not parts_dir.exists()
    assert len(read_rows(path)) == 3


def test_a_document_that_kills_its_process_is_set_aside(tmp_path, documents_dir, monkeypatch):
    class Killer(PageReader):
        def read(self, page, draw, use_ocr):
            os._exit(1) if page.file == "deadly.pdf" else None
            return super().read(page, draw, use_ocr)

    (documents_dir / "deadly.pdf").write_bytes((documents_dir / "wing.pdf").read_bytes())
    monkeypatch.setattr(stage, "PageReader", Killer)
    counts, path = run_stage(tmp_path, documents=str(documents_dir), questions="")
    assert (counts["pages"], counts["set_aside"]) == (3, 4)
    problems = [json.loads(line) for line in (path / "problems.jsonl").read_text().splitlines()]
    (problem,) = [problem for problem in problems if problem["place"].endswith("deadly.pdf")]
    assert problem["reason"].startswith("3 processes died")
