"""The index stage on a local Ray, over documents of which some are broken."""

import gzip
import json
import os
from contextlib import nullcontext

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from embedding_models import write_clip_model, write_embedding_model
from pdf_bombs import build_self_reference
from PIL import Image, ImageDraw, ImageFont
from pypdfium2 import PdfDocument
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen.canvas import Canvas
from text_bombs import build_paragraphs, build_word, build_zip_bomb

from drag_ray import schemas
from drag_ray.cli.main import run_command
from drag_ray.cluster import connection
from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.engine.encoders.embedding import Embedder, ImageEmbedder
from drag_ray.errors import ConfigError, DataError
from drag_ray.index import stage, vector_parts
from drag_ray.index.config import IndexSections
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import compute_identity, run_stage
from drag_ray.pipeline.stages import STAGES
from drag_ray.search.config import EmbeddingConfig, ImageEmbeddingConfig, SearchConfig
from drag_ray.search.index import read_record
from drag_ray.search.searcher import Searcher
from drag_ray.search.vectors import PageVectors
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage import artifacts

pytestmark = pytest.mark.usefixtures("local_ray")


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


def end(*arguments):
    raise KeyboardInterrupt


def run_index(tmp_path, embedding=None, image_embedding=None, **options):
    identity = artifacts.Identity("index", {}, {})
    embeddings = (embedding or EmbeddingConfig(), image_embedding or ImageEmbeddingConfig())
    sections = IndexSections(CorpusConfig(**options), SearchConfig(), *embeddings)
    with StageFolder(tmp_path / "run" / "index", identity) as folder:
        return stage.run(sections, Inputs({}), folder), folder.path


def test_pages_questions_and_index_are_written_and_the_broken_rest_is_counted(tmp_path, documents_dir):
    evidence = {"q1": [["rotor", 1]], "q2": [["wing.pdf", 1], ["lost.pdf", 1]], "q3": [["lost.pdf", 1]]}
    questions = tmp_path / "questions.jsonl"
    questions.write_text("".join(json.dumps({"id": i, "question": i, "gold": gold}) + "\n" for i, gold in evidence.items()))
    counts, folder = run_index(tmp_path, documents=str(documents_dir), questions=str(questions), test_fraction=0.5)
    assert counts == {
        "documents": 3,
        **{"kept_documents": 0, "read_documents": 3, "removed_documents": 0},
        "pages": 3,
        "pages_by_ocr": 0,
        "pages_without_text": 1,
        "questions": 2,
        "train": 1,
        "test": 1,
        "near_duplicate_pages": 0,
        **{"set_aside": 5, "broken_files": 1, "broken_records": 1, "duplicates": 1, "incomplete_questions": 2},
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


def test_training_questions_with_near_duplicates_of_test_evidence_are_set_aside_and_counted(tmp_path):
    text = " ".join(f"word{number}" for number in range(40))
    texts = {"old": text, "new": f"{text} and a word more", "other": text[::-1], "copy": text[::-1].upper()}
    documents, questions = tmp_path / "pages.jsonl", tmp_path / "questions.jsonl"
    documents.write_text("".join(json.dumps({"file": name, "page": 1, "text": text}) + "\n" for name, text in texts.items()))

    def ask(splits):
        lines = [{"id": name, "question": name, "gold": [[name, 1]], "split": split} for name, split in splits.items()]
        questions.write_text("".join(json.dumps(line) + "\n" for line in lines))
        counts, folder = run_index(tmp_path, documents=str(documents), questions=str(questions), test_fraction=0.5)
        rows = schemas.read_table(folder / "questions.parquet", schemas.QUESTIONS).to_pylist()
        problems = [json.loads(line) for line in (folder / "problems.jsonl").read_text().splitlines()]
        return {row["id"]: row["split"] for row in rows}, problems, counts

    splits, problems, counts = ask({"old": "train", "new": "dev", "other": "train", "copy": "train"})
    assert splits == {"new": "test", "other": "train", "copy": "train"}
    [problem] = problems
    assert (problem["place"], problem["kind"]) == ("question old", "test_overlap")
    assert problem["reason"].startswith("page 1 of 'old' nearly duplicates page 1 of 'new', evidence of test question 'new'")
    assert (counts["near_duplicate_pages"], counts["set_aside"], counts["test_overlaps"]) == (4, 1, 1)
    splits, problems, counts = ask(dict.fromkeys(texts, ""))
    assert splits["old"] == splits["new"] != splits["other"] == splits["copy"]
    assert (problems, counts["train"], counts["test"]) == ([], 2, 2)


def test_the_embedded_commands_need_no_input(tmp_path):
    counts, _ = run_index(tmp_path, limit_pages=40)
    assert (counts["pages"], counts["questions"], counts["train"] + counts["test"]) == (40, 41, 41)
    assert 0 < counts["test"] <= 0.3 * 41


def test_documents_without_a_readable_page_are_an_error(tmp_path, documents_dir):
    with pytest.raises(DataError, match=r"1 documents, but no page could be read\. First problem: .*broken\.pdf"):
        run_index(tmp_path, documents=str(documents_dir / "broken.pdf"), questions="")


def test_questions_that_cannot_be_read_are_refused_before_the_documents(tmp_path, documents_dir):
    questions = tmp_path / "questions.jsonl"
    questions.write_text('{"id": "q1", "frage": "?", "evidence": [["rotor", 1]]}\n')
    with pytest.raises(DataError, match=r"no question could be read\. First problem: .*jsonl:1: column 'question'"):
        run_index(tmp_path, documents=str(documents_dir), questions=str(questions))
    assert not (tmp_path / "run" / "index" / "parts").exists()


def test_own_documents_have_none_of_the_embedded_questions(tmp_path, documents_dir):
    counts, _ = run_index(tmp_path / "alone", documents=str(documents_dir))
    assert counts["pages"] > 0
    assert (counts["questions"], counts["train"], counts["test"]) == (0, 0, 0)
    with pytest.raises(ConfigError, match=r"corpus\.questions is 'commands'"):
        run_index(tmp_path / "both", documents=str(documents_dir), questions="commands")


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
    line = " ".join(["Wing spar loads"] * 3)
    for number in range(3):
        canvas.drawString(72, 100 - 20 * number, line)
    canvas.showPage()
    canvas.drawImage(ImageReader(scan("Tail rotor torque")), 0, 0, 480, 300)
    canvas.save()
    scan("Fuel valve").save(folder / "b.tif", save_all=True, append_images=[scan("Oil filter")], compression="tiff_lzw")
    (folder / "c.png").write_text("no picture")
    counts, path = run_index(tmp_path, documents=str(folder), questions="", page_images=True)
    assert {name: counts[name] for name in ("documents", "pages", "pages_by_ocr", "pages_without_text", "set_aside")} == {
        "documents": 3,
        "pages": 4,
        "pages_by_ocr": 3,
        "pages_without_text": 0,
        "set_aside": 1,
    }
    rows = read_rows(path)
    assert [(row["file"], row["page_number"], row["text"], row["text_source"]) for row in rows] == [
        ("a.pdf", 1, "\n".join([line] * 3), "text_layer"),
        ("a.pdf", 2, "Tail rotor torque", "ocr"),
        ("b.tif", 1, "Fuel valve", "ocr"),
        ("b.tif", 2, "Oil filter", "ocr"),
    ]
    images = ImageStore(path / "page_images")
    assert [images.open(row["image"]).width for row in rows] == pytest.approx([1000, 1000, 480, 480], abs=1)


def test_a_scan_under_a_long_stamp_is_named_without_ocr_and_files_within_a_pdf_are_too(tmp_path):
    folder = tmp_path / "documents"
    folder.mkdir()
    canvas = Canvas(str(tmp_path / "a.pdf"), pagesize=(480, 300))
    canvas.drawImage(ImageReader(scan("Tail rotor torque")), 0, 0, 480, 300)
    canvas.setFont("Helvetica", 6)
    canvas.drawString(20, 10, "Digitized from microfilm reel 22 " * 4)
    canvas.save()
    document = PdfDocument(tmp_path / "a.pdf")
    document.new_attachment("tender7.xlsx").set_data(b"data")
    document.save(folder / "a.pdf")
    document.close()
    counts, path = run_index(tmp_path, documents=str(folder), questions="", ocr="off")
    assert (counts["pages"], counts["doubtful_pages"], counts["attachments"], counts["set_aside"]) == (1, 1, 1, 1)
    reasons = [json.loads(line)["reason"] for line in (path / "problems.jsonl").read_text().splitlines()]
    assert "tender7.xlsx" in reasons[0]
    assert reasons[1].startswith("Its text layer is short, and the page has pictures")
    counts, path = run_index(tmp_path / "again", documents=str(folder), questions="")
    assert (counts["pages_by_ocr"], counts["doubtful_pages"]) == (1, 1)
    assert "Tail rotor torque" in read_rows(path)[0]["text"]


def test_a_stage_that_is_started_again_keeps_the_parts_that_it_has(tmp_path, documents_dir, monkeypatch):
    monkeypatch.setattr(stage, "build_index", end)
    with pytest.raises(KeyboardInterrupt):
        run_index(tmp_path, documents=str(documents_dir), questions="")
    parts_dir = tmp_path / "run" / "index" / "parts"
    (kept,) = parts_dir.iterdir()
    written_ns = kept.stat().st_mtime_ns
    with pytest.raises(KeyboardInterrupt):
        run_index(tmp_path, documents=str(documents_dir), questions="")
    assert kept.stat().st_mtime_ns == written_ns
    monkeypatch.undo()
    counts, path = run_index(tmp_path, documents=str(documents_dir), questions="")
    assert (counts["pages"], counts["set_aside"]) == (3, 3)
    assert not parts_dir.exists()
    assert len(read_rows(path)) == 3


def write_bad_documents(folder):
    """Adds to the folder what else it can hold, some good pages among it; returns why each thing is set aside, by its name."""
    page = '{"file": "%s", "page": %s, "text": "%s"}'
    deep = "[" * 100_000 + "]" * 100_000
    lines = [
        page % ("rotor", 2, "tail"),
        page % ("rotor", "5" * 5_000, "x"),
        page % ("rotor", f'"{"5" * 5_000}"', "x"),
        page % ("rotor", -5, "x"),
        page % ("rotor", deep, "x"),
        page % ("ro\\ud800tor", 2, "x"),
        page % ("odd", 1, "w\\ud800ing\\u0000"),
    ]
    (folder / "lines.jsonl").write_text("\n".join(lines))
    (folder / "cut.jsonl.gz").write_bytes(gzip.compress((page % ("gz", 1, "whole") + "\n").encode()) + b"rubbish")
    texts = pa.array([b"good", b"\xff"], pa.binary()).view(pa.string())
    times = pa.array([2**62, 0], pa.timestamp("us"))
    pq.write_table(pa.table({"file": ["p", "p"], "page": [1, 2], "text": texts, "time": times}), folder / "rows.parquet")
    (folder / "no.parquet").write_bytes(b"PAR1")
    for name in ("report.doc", "note.rtf", "a.gif", "b.webp", os.fsdecode(b"w\xefng.pdf")):
        (folder / name).write_bytes(b"x")
    os.mkfifo(folder / "pipe.pdf")
    (folder / "lost.pdf").symlink_to(folder / "nowhere.pdf")
    (folder / "loop.jsonl").symlink_to(folder / "loop.jsonl")
    (folder / "up").symlink_to(folder, target_is_directory=True)
    (folder / "folder.pdf").mkdir()
    return {
        "lines.jsonl:2": "not JSON (Exceeds the limit",
        "lines.jsonl:3": "cannot be read (ValueError: Exceeds the limit",
        "lines.jsonl:4": "column 'page': got -5 (int), expected a whole number",
        "lines.jsonl:5": "not JSON (nested too deeply",
        "lines.jsonl:6": "column 'file': got 'ro\\ud800tor', expected text without",
        "cut.jsonl.gz:2 and what follows": "cannot be read (BadGzipFile",
        "rows.parquet:2": "cannot be read (UnicodeDecodeError",
        "no.parquet": "cannot be read (ArrowInvalid",
        "report.doc": "a .doc file, expected .pdf",
        "note.rtf": "a .rtf file, expected .pdf",
        "a.gif": "a .gif file, expected .pdf",
        "b.webp": "a .webp file, expected .pdf",
        "w\\xefng.pdf": "its path is not UTF-8",
        "pipe.pdf": "no regular file",
        "lost.pdf": "no regular file",
        "loop.jsonl": "no regular file",
        "up": "a link to a folder, which is not followed",
    }


def test_whatever_lies_there_the_stage_ends_well_and_names_what_it_set_aside(tmp_path, documents_dir, capsys):
    expected = write_bad_documents(documents_dir)
    asked = {"gold": [["rotor", 1]], "answers": ["3\ud80040"], "question": "How fast?"}
    lines = [
        json.dumps({"id": "good", **asked}),
        json.dumps({"id": "bad\ud800", **asked}),
        json.dumps({"id": "long", **asked, "question": "How? " * 2_000_000}),
        "[" * 100_000,
    ]
    questions = documents_dir / "questions.jsonl"
    questions.write_text("\n".join(lines))
    config = RunConfig(run_dir=tmp_path / "run", corpus=CorpusConfig(documents=str(documents_dir), questions=str(questions)))
    counts = run_stage(STAGES["index"], config).counts
    folder = tmp_path / "run" / "index"
    assert [(row["file"], row["page_number"], row["text"]) for row in read_rows(folder)] == [
        *(("gz", 1, "whole"), ("odd", 1, "wing"), ("p", 1, "good"), ("rotor", 1, "Rotor speed"), ("rotor", 2, "tail")),
        *(("wing.pdf", 1, "Wing spar loads"), ("wing.pdf", 2, "")),
    ]
    kept = schemas.read_table(folder / "questions.parquet", schemas.QUESTIONS).to_pylist()
    assert [(row["id"], row["answers"], len(row["question"])) for row in kept] == [
        ("good", ["340"], 9),
        ("long", ["340"], 9_999_999),
    ]
    expected |= {
        "questions.jsonl:2": "column 'id': got 'bad\\ud800', expected text without",
        "questions.jsonl:4": "not JSON (nested too deeply",
    }
    expected |= {"pages.jsonl:2": "not JSON", "pages.jsonl:3": "page 1 of 'rotor' comes again", "broken.pdf": ""}
    problems = [json.loads(line) for line in (folder / "problems.jsonl").read_text().splitlines()]
    reasons = {problem["place"].rpartition("/")[2]: problem["reason"] for problem in problems}
    assert reasons.keys() == expected.keys()
    assert all(reasons[place].startswith(reason) for place, reason in expected.items())
    kinds = {"unknown_files": 5, "broken_files": 6, "broken_records": 10, "duplicates": 1}
    assert {name: counts[name] for name in ("set_aside", *kinds)} == {"set_aside": 22, **kinds}
    assert "set_aside 22, unknown_files 5, broken_files 6, broken_records 10, duplicates 1\n" in capsys.readouterr().out


def test_a_document_that_exhausts_its_process_is_set_aside(tmp_path, documents_dir):
    (documents_dir / "deadly.pdf").write_bytes(build_self_reference())
    counts, path = run_index(tmp_path, documents=str(documents_dir), questions="", document_memory_gib=2.0)
    assert (counts["pages"], counts["set_aside"]) == (3, 4)
    problems = [json.loads(line) for line in (path / "problems.jsonl").read_text().splitlines()]
    (problem,) = [problem for problem in problems if problem["place"].endswith("deadly.pdf")]
    assert problem["reason"].startswith("the process that read it ended (SIG")


def test_texts_of_all_kinds_are_found_by_file_and_page(tmp_path, documents_dir, monkeypatch):
    contents = {
        "sub/notes.txt": b"first page\fstrut on the second page",
        "long.md": b"# Long\n\n" + b"word " * 30 + b"**rib**",
        "web.html": b"<p>one<p style='page-break-before: always'>the flap",
        "report.docx": build_word(build_paragraphs("the aileron")),
        "bomb.docx": build_zip_bomb(65),
        "latin.txt": "Höhe".encode("latin-1"),
    }
    (documents_dir / "sub").mkdir()
    for name, content in contents.items():
        (documents_dir / name).write_bytes(content)

    def index(page_words, documents):
        options = ["--run-dir", str(tmp_path / str(page_words)), "--corpus.documents", documents, "--corpus.questions", ""]
        monkeypatch.setattr(connection, "connect", lambda config: nullcontext())  # these tests are connected already
        assert run_command("index", [*options, "--corpus.page-words", str(page_words)]) == 0
        return tmp_path / str(page_words) / "index"

    folder = index(10, str(documents_dir))
    searcher = Searcher(folder / "search_index")
    found = {word: searcher.search(word, 1)[0] for word in ("spar", "rotor", "strut", "rib", "flap", "aileron")}
    assert {word: (hit.file, hit.page_number) for word, hit in found.items()} == {
        **{"spar": ("wing.pdf", 1), "rotor": ("rotor", 1), "strut": ("sub/notes.txt", 2), "rib": ("long.md", 4)},
        **{"flap": ("web.html", 2), "aileron": ("report.docx", 1)},
    }
    problems = [json.loads(line) for line in (folder / "problems.jsonl").read_text().splitlines()]
    reasons = {problem["place"].rpartition("/")[2]: problem["reason"] for problem in problems if problem["kind"] == "broken_file"}
    assert reasons["bomb.docx"].startswith("holds more than 64 MiB")
    assert reasons["latin.txt"].startswith("is no text in utf-8")
    other = index(20, f"file://{documents_dir}")  # as from an object store
    names = [set(pq.read_table(path / "pages.parquet")["file"].to_pylist()) for path in (folder, other)]
    assert names[0] == names[1]
    assert not (other / ".documents").exists()
    places = {json.loads(line)["place"] for line in (other / "problems.jsonl").read_text().splitlines()}
    assert f"file://{documents_dir}/latin.txt" in places
    fingerprints = {artifacts.require_manifest(path, "python jobs/index.py").fingerprint for path in (folder, other)}
    assert len(fingerprints) == 2
    assert read_record(other / "search_index").fingerprint != searcher.record.fingerprint


def embed_with(folder, **options):
    return EmbeddingConfig(model=str(folder), window_tokens=8, overlap_tokens=2, **options)


def test_pages_get_vectors_and_a_stage_that_is_started_again_keeps_those_that_it_has(tmp_path, documents_dir, monkeypatch):
    lines = [{"file": "load", "page": page, "text": f"wing spar load {'fuel ' * page}"} for page in range(1, 10)]
    (documents_dir / "load.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    config = embed_with(write_embedding_model(tmp_path / "model"))
    monkeypatch.setattr(vector_parts, "_MAX_PAGES", 4)

    merge = vector_parts.merge_parts
    monkeypatch.setattr(vector_parts, "merge_parts", end)  # as by Ctrl-C, when all parts of vectors are written
    with pytest.raises(KeyboardInterrupt):
        run_index(tmp_path, config, documents=str(documents_dir), questions="")
    first, second, third = sorted((tmp_path / "run" / "index" / "vector_parts").iterdir())
    second.unlink()
    written_ns = [path.stat().st_mtime_ns for path in (first, third)]

    def look_and_merge(*arguments):
        assert second.exists()
        assert [path.stat().st_mtime_ns for path in (first, third)] == written_ns
        return merge(*arguments)

    monkeypatch.setattr(vector_parts, "merge_parts", look_and_merge)
    counts, folder = run_index(tmp_path, config, documents=str(documents_dir), questions="")
    assert not (folder / "vector_parts").exists()
    embedder = Embedder(config)
    windows = [window for row in read_rows(folder) for window in embedder.cut(row["text"])]
    assert counts["pages"] == 12
    assert counts["windows"] == len(windows) > 12
    vectors = PageVectors(folder / "vectors", read_record(folder / "search_index").fingerprint)
    assert vectors.record.embedding["model"] == str(tmp_path / "model")
    pages = read_rows(folder)
    [query] = embedder.embed_queries(["wing spar load fuel"])
    (score, row), *_ = vectors.rank(query, 3)
    assert (pages[row]["file"], pages[row]["page_number"], score) == ("load", 1, 1.0)


def test_pictures_get_vectors_part_by_part(tmp_path, monkeypatch):
    folder = tmp_path / "documents"
    folder.mkdir()
    for number, colour in enumerate(("red", "lime", "blue")):
        Image.new("RGB", (60 + 20 * number, 80), colour).save(folder / f"{colour}.png")
    (folder / "pages.jsonl").write_text('{"file": "rotor", "page": 1, "text": "Rotor speed"}')
    options = {"documents": str(folder), "questions": "", "page_images": True, "ocr": "off"}
    config = ImageEmbeddingConfig(model=str(write_clip_model(tmp_path / "model")))
    monkeypatch.setattr(vector_parts, "_MAX_PAGES", 2)
    counts, stage_dir = run_index(tmp_path, image_embedding=config, **options)
    assert (counts["pages"], counts["embedded_pictures"]) == (4, 3)
    assert not (stage_dir / "image_vector_parts").exists()
    vectors = PageVectors(stage_dir / "image_vectors", read_record(stage_dir / "search_index").fingerprint)
    embedder, store = ImageEmbedder(config), ImageStore(stage_dir / "page_images")
    pages = read_rows(stage_dir)
    for row, page in enumerate(pages):
        if page["image"]:
            [query] = embedder.embed_images([store.open(page["image"])])
            assert vectors.rank(query, 1) == [(1.0, row)]
    assert sum(bool(page["image"]) for page in pages) == 3


def test_pictures_that_are_to_be_embedded_have_to_be_kept(tmp_path, documents_dir):
    config = ImageEmbeddingConfig(model=str(write_clip_model(tmp_path / "model")))
    with pytest.raises(ConfigError, match=r"there are no pictures of pages to embed. Set --corpus\.page-images"):
        run_index(tmp_path, image_embedding=config, documents=str(documents_dir), questions="")


def test_an_embedding_model_that_cannot_be_used_is_refused_before_documents_are_read(tmp_path, documents_dir):
    folder = write_embedding_model(tmp_path / "model", modules=("Transformer", "Pooling", "own_code.Module"))
    for config, message in (
        (embed_with(folder), r"cannot be read by sentence-transformers \(.* references the module class 'own_code.Module'"),
        (embed_with(tmp_path / "nowhere"), r"embedding\.model '.*nowhere': no such folder"),
    ):
        with pytest.raises(ConfigError, match=message):
            run_index(tmp_path, config, documents=str(documents_dir), questions="")
    assert not (tmp_path / "run" / "index" / "parts").exists()


def test_a_model_without_weights_is_told_in_a_sentence(tmp_path, documents_dir):
    folder = write_embedding_model(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match=r"^embedding\.model '\S+/model': cannot be read by sentence-transformers"):
        run_index(tmp_path, embed_with(folder), documents=str(documents_dir), questions="")


def test_the_embedding_model_is_part_of_what_the_stage_is_made_from(tmp_path, documents_dir):
    folder = write_embedding_model(tmp_path / "model")
    options = {"run_dir": tmp_path / "run", "corpus": CorpusConfig(documents=str(documents_dir), questions="")}
    plain = compute_identity(STAGES["index"], RunConfig(**options))
    config = RunConfig(**options, embedding=embed_with(folder))
    identity = compute_identity(STAGES["index"], config)
    elsewhere = compute_identity(STAGES["index"], RunConfig(**options, embedding=embed_with(folder, device="gpu", batch_size=8)))
    assert identity.fingerprint == elsewhere.fingerprint != plain.fingerprint
    os.utime(folder / "model.safetensors", (0, 0))
    assert compute_identity(STAGES["index"], config).fingerprint != identity.fingerprint


@pytest.mark.parametrize("place", ["{}", "file://{}"], ids=["a folder", "an object store"])
def test_the_model_of_pictures_is_part_of_what_the_stage_is_made_from(tmp_path, documents_dir, place):
    folder = write_clip_model(tmp_path / "model")
    corpus = CorpusConfig(documents=str(documents_dir), questions="", page_images=True)

    def identify(**options):
        embedding = ImageEmbeddingConfig(model=place.format(folder), **options)
        return compute_identity(STAGES["index"], RunConfig(run_dir=tmp_path / "run", corpus=corpus, image_embedding=embedding))

    identity = identify()
    assert identify(device="gpu", batch_size=8).fingerprint == identity.fingerprint
    assert identify(dtype="float16").fingerprint != identity.fingerprint
    os.utime(folder / "model.safetensors", (0, 0))
    assert identify().fingerprint != identity.fingerprint


def ask_index(run_dir):
    """All that readers of an index see of it."""
    folder = run_dir / "index"
    tables = {
        name: pq.read_table(folder / f"{name}.parquet").to_pylist() for name in ("pages", "links", "questions", "documents")
    }
    searcher = Searcher(folder / "search_index")
    found = [searcher.search(query, 5) for query in ("rotor", "spar loads", "speed of the rotor")]
    images = sorted(path.name for path in (folder / "page_images").rglob("*.jpg"))
    return tables, (folder / "problems.jsonl").read_text(), found, images, searcher.record.fingerprint


def test_documents_that_change_are_read_alone_and_the_index_is_that_of_a_build_from_nothing(tmp_path, documents_dir, monkeypatch):
    (documents_dir / "notes.md").write_text("speed [of](wing.pdf) the spar")
    (documents_dir / "old.txt").write_text("rotor rotor")
    scan("Tail rotor torque").save(documents_dir / "scan.png")

    def index(name, **options):
        corpus = CorpusConfig(documents=str(documents_dir), page_images=True, **options)
        return run_stage(STAGES["index"], RunConfig(run_dir=tmp_path / name, corpus=corpus))

    first = index("run")
    (documents_dir / "notes.md").write_text("speed of the rotor")
    (documents_dir / "old.txt").unlink()
    before = ask_index(tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr(stage, "build_index", end)
        with pytest.raises(KeyboardInterrupt):
            index("run")
    assert ask_index(tmp_path / "run") == before  # until the new one is whole
    assert artifacts.require_manifest(tmp_path / "run" / "index") == first
    second = index("run")
    names = ("documents", "kept_documents", "read_documents", "removed_documents")
    assert [second.counts[name] for name in names] == [5, 3, 2, 1]
    anew = index("anew")
    assert ask_index(tmp_path / "run") == ask_index(tmp_path / "anew")
    assert second.outcome_fingerprint == anew.outcome_fingerprint != first.outcome_fingerprint
    assert not (tmp_path / "run" / ".index.next").exists()
    assert len(list((tmp_path / "run" / "_previous").glob("index-*"))) == 1
    (documents_dir / "said.csv").write_text("file,group,year\nnotes.md,a,2020\nwing.pdf,b,2021\ngone.pdf,b,\n")
    said = index("run", metadata=str(documents_dir / "said.csv"), access_column="group")
    names = (*names[:3], "set_aside", "unknown_documents", "undescribed_documents")
    assert [said.counts[name] for name in names] == [5, 4, 1, second.counts["set_aside"] + 1, 1, 2]  # a broken one is read again
    searcher = Searcher(tmp_path / "run" / "index" / "search_index")
    assert {hit.file for hit in searcher.narrow({"year": {"gte": 2020}}).search("spar speed", 9)} == {"notes.md", "wing.pdf"}
    assert {hit.file for hit in searcher.limit_to(["a"]).search("spar speed", 9)} == {"notes.md"}
