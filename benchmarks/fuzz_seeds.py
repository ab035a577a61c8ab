"""Small sound files of every kind that is read, made here, for a fuzzer to damage."""

import gzip
import io
import json
import random
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from docx.enum.text import WD_BREAK
from mutations import mutate
from PIL import Image, ImageDraw
from reportlab.pdfgen.canvas import Canvas
from safetensors.numpy import save

from drag_ray.agent.config import AgentConfig
from drag_ray.process.interchange import INTERCHANGES
from drag_ray.process.interchange.drag import read_trajectories
from drag_ray.process.interchange_format import load_interchange
from drag_ray.storage.artifacts import compute_fingerprint
from drag_ray.types import Trajectory

_TEXT = "The rotor at 340 rpm.\n\n# Limits\n\n* oil: 5 l\n* fuel\n\n|a|b|\n|-|-|\n|1|Größe|\n\fNext [page](x) <b>bold</b> 東京\n"
_HTML = (
    '<!DOCTYPE html><html><head><meta charset="utf-8"><style>p {color: red}</style></head><body><h1>Rotor</h1>'
    '<p style="page-break-after: always">One<br>two &amp; three<table><tr><td>a<td>b</table><pre>x\n y</pre><!-- c --></html>'
)
_PAGES: list[dict[str, Any]] = [
    {"file": "a.pdf", "page_number": 1, "total_pages": 2, "text": "rotor \u6771", "service": "x"},
    {"document": "b.pdf", "page": "2", "text": ""},
]
_QUESTIONS: list[dict[str, Any]] = [
    {
        "id": "q1",
        "question": "How fast?",
        "evidence": [{"file": "a.pdf", "page_number": 1}],
        "answers": ["340 rpm"],
        "split": "dev",
    },
    {"question_id": "q2", "question": "Why?", "gold": [["a.pdf", 1], "b.pdf:2"], "answer_variants": [["x"], ["y", "z"]]},
]
_TRAJECTORY: dict[str, Any] = {
    **{"id": "t1", "question_id": "q1", "question": "How fast?", "final_answer": ["340"], "final_citations": [], "success": True},
    "ground_truth": {"answers": ["340 rpm"], "answer_locations": [{"document": "a.pdf", "page": 7}], "category": ""},
    "iterations": [
        {
            **{
                "step": 1,
                "reasoning": "",
                "action": "search",
                "query": "rotor",
                "gt_found": True,
                "gt_rank": 1,
                "rank_score": 1.0,
            },
            "results": [{"file": "a.pdf", "page_number": 7, "total_pages": 20, "rank": 1}],
            **{"answer": None, "citations": None, "raw_response": ""},
        },
        {
            "step": 2,
            "reasoning": "so",
            "action": "provide_answer",
            "query": None,
            "results": [],
            "answer": ["340"],
            "citations": [],
        },
    ],
    **{"model": "m", "timestamp": "2026-01-01T00:00:00", "error": None},
}
_CONFIG = """run_dir = "runs/x"
[corpus]
documents = "commands"
limit_pages = 10
[agent]
question_weight = 1.5
[[agent.examples]]
question = "How fast?"
query = "rotor speed"
[finetune]
learning_rate = 1e-4
"""
_MODEL = {"hidden_size": 576, "num_hidden_layers": 30, "text_config": {"hidden_size": 576, "num_hidden_layers": 30}}
_ADAPTER = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "task_type": "CAUSAL_LM", "bias": "none", "modules_to_save": None}
_BASE = {"name": "m", "fingerprint": compute_fingerprint(_MODEL), "hidden_size": 576, "num_layers": 30}
_LAYER = "base_model.model.model.layers.0.self_attn.q_proj"


def build_seeds() -> dict[str, list[bytes]]:
    """Files by their names' ends: two or more of each kind that is read as a document, by what they are otherwise."""
    lines = {name: "\n".join(map(json.dumps, rows)).encode() for name, rows in (("pages", _PAGES), ("questions", _QUESTIONS))}
    shapes = {"lora_A": (8, 576), "lora_B": (576, 8)}
    weights = save({f"{_LAYER}.{name}.weight": np.ones(shape, dtype=np.float32) for name, shape in shapes.items()})
    return {
        ".pdf": [_write_pdf(1), _write_pdf(3)],
        ".png": [_write_image("PNG"), _write_image("PNG", "LA")],
        ".jpg": [_write_image("JPEG"), _write_image("JPEG", "L")],
        ".tif": [_write_image("TIFF"), _write_image("TIFF", "1", save_all=True, append_images=[Image.new("RGB", (9, 9))])],
        ".txt": [_TEXT.encode(), _TEXT.encode("utf-16")],
        ".md": [_TEXT.encode(), b"> a\n> > b\n\n1. x\n   ```\n   y\n"],
        ".html": [_HTML.encode(), b"<p>a<b>b<i>c</b>d</i><script>x</script><td>y<select><option>z"],
        ".docx": [_write_word(), _write_word(tables=2)],
        ".jsonl": [lines["pages"], lines["pages"] + b"\n\n{half"],
        ".jsonl.gz": [gzip.compress(lines["pages"]), gzip.compress(lines["pages"] * 9)],
        ".parquet": [_write_parquet(_PAGES[:1] * 3), _write_parquet(_PAGES[:1], compression="none")],
        "questions.jsonl": [lines["questions"], lines["questions"][:200]],
        "questions.parquet": [_write_parquet(_QUESTIONS[:1]), _write_parquet(_QUESTIONS[:1] * 9, compression="none")],
        **_write_trajectories(),
        "config.toml": [_CONFIG.encode(), b"[cluster]\nnum_cpus = 2\n[engine]\nmodel = 'm'\n"],
        "model/config.json": [json.dumps(_MODEL).encode()],
        "adapter/adapter_config.json": [json.dumps(_ADAPTER).encode()],
        "adapter/drag_ray_base.json": [json.dumps(_BASE).encode()],
        "adapter/adapter_model.safetensors": [weights],
        "bare/adapter_config.json": [json.dumps(_ADAPTER).encode()],  # without the note, its base model is told by its shapes
        "bare/adapter_model.safetensors": [weights],
    }


def _write_trajectories() -> dict[str, list[bytes]]:
    """A trajectory in every format in which some are read."""
    seeds: dict[str, list[bytes]] = {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "drag.jsonl")
        source.write_text(json.dumps(_TRAJECTORY))
        [trajectory] = read_trajectories(source, AgentConfig(query_mode="rewrite"))
        assert isinstance(trajectory, Trajectory)
        formats = {name: load_interchange(name) for name in INTERCHANGES}
        for name, interchange in formats.items():
            if interchange.read is None:
                continue
            target = Path(folder, "written", name)
            interchange.write([trajectory], target)
            file = next(path for path in (target, *target.rglob("*")) if path.is_file())
            seeds[f"trajectories/{name}{file.suffix or '.jsonl'}"] = [file.read_bytes()]
    return seeds


def damage(name: str, seeds: list[bytes], rng: random.Random) -> bytes:
    """One of the seeds, changed: what it packs is changed as often as itself, since a checksum finds most of the latter."""
    data, other = rng.choice(seeds), rng.choice(seeds)
    unpacked = _CONTAINERS.get(name)
    return unpacked(data, other, rng) if unpacked and rng.random() < 0.7 else mutate(data, other, rng)


def _damage_gzip(data: bytes, other: bytes, rng: random.Random) -> bytes:
    return gzip.compress(mutate(gzip.decompress(data), gzip.decompress(other), rng))


def _damage_zip(data: bytes, other: bytes, rng: random.Random) -> bytes:
    """An archive in which one file, most often the text, is changed."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as changed:
        names = archive.namelist()
        chosen = rng.choice([*names, *["word/document.xml"] * len(names)])
        for name in names:
            content = archive.read(name)
            changed.writestr(name, mutate(content, content, rng) if name == chosen else content)
    return stream.getvalue()


_CONTAINERS: dict[str, Callable[[bytes, bytes, random.Random], bytes]] = {".jsonl.gz": _damage_gzip, ".docx": _damage_zip}


def _write_pdf(num_pages: int) -> bytes:
    stream = io.BytesIO()
    canvas = Canvas(stream, pagesize=(200, 200), pageCompression=num_pages % 2)
    for number in range(num_pages):
        canvas.drawString(20, 100, f"rotor {number}")
        canvas.rect(10, 10, 50, 50, fill=1)
        if number:
            canvas.acroForm.textfield(name=f"t{number}", value="oil", x=20, y=60, width=50, height=20)
            canvas.acroForm.checkbox(name=f"c{number}", checked=True, x=90, y=60)
            canvas.textAnnotation("noted", [10, 150, 30, 170])
        canvas.showPage()
    canvas.save()
    return stream.getvalue()


def _write_image(form: str, mode: str = "RGB", **options: Any) -> bytes:
    image = Image.new(mode, (40, 30))
    ImageDraw.Draw(image).line((0, 0, 40, 30))
    stream = io.BytesIO()
    image.save(stream, form, **options)
    return stream.getvalue()


def _write_word(tables: int = 0) -> bytes:
    document = docx.Document()
    document.add_heading("Rotor")
    document.add_paragraph("one").add_run().add_break(WD_BREAK.PAGE)
    for _ in range(tables):
        document.add_table(2, 2).cell(0, 0).text = "cell"
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


def _write_parquet(rows: list[dict[str, Any]], compression: str = "zstd") -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), stream, compression=compression)
    return stream.getvalue()
