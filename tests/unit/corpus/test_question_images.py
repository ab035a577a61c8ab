"""Questions with images: every spelling is read, and what cannot be read costs its own row and is named."""

import base64
import io
import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from drag_ray import schemas
from drag_ray.config import load
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.question_images import MAX_IMAGES, QuestionImages
from drag_ray.corpus.questions import read_questions
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import compute_identity
from drag_ray.pipeline.stages import STAGES
from drag_ray.types import Question


def encode(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


RED = encode(Image.new("RGB", (30, 20), "red"))
RED_URL = f"data:image/png;base64,{base64.b64encode(RED).decode()}"


def declare_png(width: int, height: int) -> bytes:
    """A PNG whose header says so many pixels, and that holds none."""
    chunks = (b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"IDAT" + zlib.compress(b""))
    parts = (struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk)) for chunk in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def read(folder: Path, **columns: Any) -> tuple[list[Question], list[str]]:
    """The questions of a row with these columns, and why rows were set aside."""
    (folder / "questions").mkdir(exist_ok=True)
    path = folder / "questions" / "questions.jsonl"
    path.write_text(json.dumps({"id": "q", "question": "What?", "file": "a.pdf", "page": 1, **columns}) + "\n")
    images = QuestionImages(ImageStore(folder / "store"), (path.parent, folder / "corpus"), max_pixels=10_000)
    questions, problems = read_questions(path, images=images)
    return questions, [problem.reason for problem in problems]


def test_an_image_is_found_beside_the_questions_in_the_corpus_and_in_the_row(tmp_path: Path) -> None:
    (tmp_path / "questions").mkdir()
    (tmp_path / "corpus").mkdir()
    (tmp_path / "questions" / "one.png").write_bytes(RED)
    (tmp_path / "corpus" / "two.png").write_bytes(RED)
    [question], problems = read(tmp_path, image="one.png", images=["two.png", RED_URL, {"path": "one.png", "bytes": None}])
    assert not problems
    assert len(question.images) == 4
    [key] = set(question.images)  # the same picture is one file
    assert ImageStore(tmp_path / "store").open(key).size == (30, 20)
    [row] = schemas.to_table([question], schemas.QUESTIONS).to_pylist()
    assert schemas.to_question(row) == question


def test_bytes_of_a_table_are_read_and_without_a_store_their_rows_set_aside(tmp_path: Path) -> None:
    rows = {"id": ["a", "b"], "question": ["What?", "And?"], "file": ["a.pdf"] * 2, "page": [1] * 2}
    pq.write_table(pa.table({**rows, "image": [{"bytes": RED, "path": "x.png"}, None]}), tmp_path / "q.parquet")
    images = QuestionImages(ImageStore(tmp_path / "store"), (tmp_path,), max_pixels=10_000)
    questions, problems = read_questions(tmp_path / "q.parquet", images=images)
    assert [len(question.images) for question in questions] == [1, 0]
    assert not problems
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"id": "q", "question": "What?", "file": "a.pdf", "page": 1, "image": RED_URL}) + "\n")
    questions, [problem] = read_questions(path)
    assert (questions, "no store" in problem.reason) == ([], True)


def to_url(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


FRAMES = encode(Image.new("RGB", (9, 9), "red"), "GIF", save_all=True, append_images=[Image.new("RGB", (9, 9), "blue")])


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ("no.png", "no file 'no.png'"),
        ("../outside.png", "no file '../outside.png'"),
        ("link.png", "no file 'link.png'"),
        ("/etc/passwd", "no file '/etc/passwd'"),
        ("a\0b", "expected a path"),
        ("https://example.org/x.png", "nothing is fetched"),
        ("data:image/png,abc", "expected data:image/...;base64"),
        ("data:image/png;base64,@@@", "base64 cannot be read"),
        (7, "(int), expected a path"),
        ({"url": "x"}, "(NoneType), expected a path"),
        (to_url(b"no picture"), "got no picture"),
        (to_url(RED[:60]), "the picture cannot be read"),
        (to_url(declare_png(20_000, 10_000)), "more than 50,000,000 pixels"),
        (to_url(declare_png(8_000, 8_000)), "8,000 x 8,000 pixels"),
        (to_url(FRAMES), "several frames"),
        ([RED_URL] * (MAX_IMAGES + 1), f"got {MAX_IMAGES + 1} images"),
    ],
)
def test_a_row_whose_image_cannot_be_read_is_set_aside_with_the_reason(tmp_path: Path, image: Any, reason: str) -> None:
    (tmp_path / "questions").mkdir()
    (tmp_path / "outside.png").write_bytes(RED)
    (tmp_path / "questions" / "link.png").symlink_to(tmp_path / "outside.png")
    questions, [found] = read(tmp_path, image=image)
    assert not questions
    assert reason in found


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_a_changed_image_beside_the_questions_is_another_index(tmp_path: Path, suffix: str) -> None:
    documents, table = tmp_path / "documents", tmp_path / f"questions{suffix}"
    documents.mkdir()
    (documents / "a.md").write_text("The rotor turns.")
    image, unnamed = tmp_path / "wing.png", tmp_path / "other.png"
    image.write_bytes(RED)
    unnamed.write_bytes(RED)
    rows = [{"image": name} for name in ("wing.png", "../secret.png", RED_URL, "\0", 300 * "x")]
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), table)
    else:
        table.write_text(
            "".join(json.dumps(row) + "\n" for row in [*rows, {"images": [None, 5, {"path": "wing.png"}]}]) + "no row"
        )
    arguments = ["--run-dir", str(tmp_path / "run"), "--corpus.documents", str(documents), "--corpus.questions", str(table)]

    def identify() -> str:
        return compute_identity(STAGES["index"], load(RunConfig, arguments)).fingerprint

    before = identify()
    os.utime(unnamed, ns=(1, 1))
    assert identify() == before
    os.utime(image, ns=(1, 1))
    assert identify() != before
