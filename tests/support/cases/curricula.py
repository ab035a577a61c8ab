"""The shipped curricula on ten pages with pictures, with a teacher that writes what is learned first."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import torch
from chat_server import Answer, serve_chat
from embedded_tokenizer import write_tokenizer
from qwen3_vl_shapes import SHAPES_TINY, write_model
from reportlab.pdfgen.canvas import Canvas
from transformers import AutoConfig, Qwen3VLForConditionalGeneration

import drag_ray
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.types import Evidence

CONFIGS = Path(__file__).parents[3] / "jobs" / "configs"
PARTS = ("rotor", "spar", "valve", "pump", "flap", "wheel", "lamp", "seat", "strut", "brake")
NUM_TEST_PARTS = 3
CALLS = get_protocol("tools")


def write_policy(folder: Path) -> Path:
    """A model that can be sure of a word, narrow as it is."""
    write_model(folder, write_tokenizer(folder), SHAPES_TINY, max_pixels=256 * 256)
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(folder)
    config.text_config.initializer_range = config.vision_config.initializer_range = 0.2
    model: Any = Qwen3VLForConditionalGeneration(config)
    model.lm_head.weight.data.mul_(4)
    model.float().save_pretrained(folder)
    return folder


def write_documents(folder: Path, size: tuple[int, int] = (200, 200)) -> None:
    """A page of each part, of so many points, and questions, whose evidence is the second or third of four candidates."""
    (folder / "documents").mkdir(parents=True)
    lines = []
    for place, part in enumerate(PARTS):
        canvas = Canvas(str(folder / "documents" / f"{part}.pdf"), pagesize=size)
        canvas.setFillColorRGB(place / 10, 0.5, 1 - place / 10)
        canvas.rect(0, 0, size[0], size[1] // 2, fill=1)
        canvas.drawString(20, size[1] * 3 // 4, f"The speed of the {part} is {part[::-1]}.")
        canvas.save()
        pages = [{"file": f"{PARTS[(place + step) % len(PARTS)]}.pdf", "page_number": 1} for step in (1, 2, 3)]
        pages.insert(1 + place % 2, {"file": f"{part}.pdf", "page_number": 1})
        question = {"id": part, "question": f"What is the speed of the {part}?", "candidates": pages, "answers": [part[::-1]]}
        split = "test" if part in PARTS[-NUM_TEST_PARTS:] else "train"
        lines.append(json.dumps({**question, "evidence": [{"file": f"{part}.pdf", "page_number": 1}], "split": split}))
    (folder / "questions.jsonl").write_text("\n".join(lines))


def find_part(body: dict[str, Any]) -> str:
    return re.findall(r"speed of the (\w+)\?", json.dumps(body["messages"]))[-1]


def order(body: dict[str, Any], number: int) -> Answer:
    """The page that is asked for first; of every fourth sample last."""
    best = 2 + PARTS.index(find_part(body)) % 2
    others = [place for place in (1, 2, 3, 4) if place != best]
    return Answer(f"<answer>{[*others, best] if number % 4 == 3 else [best, *others]}</answer>")


def answer(body: dict[str, Any], number: int) -> Answer:
    """A search, then the answer; of every fourth sample a wrong one."""
    part = find_part(body)
    if body["messages"][-1]["role"] == "tool" or len(body["messages"]) > 3:
        text = "unknown" if number % 4 == 3 else part[::-1]
        return Answer(CALLS.render_answer(text, (Evidence(f"{part}.pdf", 1),)))
    return Answer(CALLS.render_search(part))


def build_options(folder: Path, model: Path, name: str, teacher: dict[str, Any], learning: dict[str, Any]) -> dict[str, Any]:
    """Options that make the configuration small, and its first round a teacher's."""
    curriculum = tomllib.loads((CONFIGS / f"{name}.toml").read_text())["curriculum"]
    for number, entry in enumerate(curriculum):
        entry["finetune"] |= {"num_workers": 1, "gradient_accumulation": 1, "max_length": 16384, **learning}
        entry["collect"] |= {"teacher": teacher} if not number else {}
        entry["process"] = {"reward": name.removesuffix("_curriculum")}
    windows = {"candidates": 4, "window": 4, "step": 1}
    return {
        "corpus": {"documents": str(folder / "documents"), "questions": str(folder / "questions.jsonl"), "ocr": "off"},
        "agent": {"max_tokens": 96, "max_iterations": 2, "thinking": False, "depth": 4, "top_k": 1, "rerank": windows},
        "engine": {
            **{"model": str(model), "device": "cpu", "dtype": "float32", "max_model_len": 16384},
            **{"max_num_seqs": 16, "enforce_eager": True},
        },
        "rollout": {"concurrent_rollouts": 16, "flush_s": 0},
        "format": {"validation_fraction": 0.2},
        "curriculum": curriculum,
        **({"process": {"reward": "tests.support.cases.own_rewards:reward_letters"}} if name.startswith("opensearch") else {}),
        "finetune": {
            **{"device": "cpu", "dtype": "float32", "num_workers": 1, "learning_rate": 1e-3, "max_length": 16384},
            "gradient_checkpointing": False,
        },
        "rl": {
            **{"steps": 2, "questions_per_step": 2, "samples_per_question": 4, "refills": 4, "validation_steps": 2},
            **{"max_kl": 100, "min_entropy": 0, "max_without_search": 1.0},
        },
    }


def run_curriculum(
    folder: Path,
    model: Path,
    name: str,
    ray_address: str,
    learning: dict[str, Any],
    **sections: dict[str, Any],
) -> Path:
    """Run a shipped curriculum on the documents of the folder to its end, and give the folder of the run.

    Args:
        name: of its configuration.
        learning: options of the training of each round.
        sections: options that take the place of those for a small model on CPUs.
    """
    run_dir = folder / "run"
    with serve_chat(TEACHERS[name]) as served:
        teacher = {"backend": "openai", "model": "teacher", "endpoint": {"address": served.address}}
        options = build_options(folder, model, name, teacher, learning)
        options |= {section: options.get(section, {}) | given for section, given in sections.items()}
        with drag_ray.open_run(run_dir, config=CONFIGS / f"{name}.toml", cluster={"address": ray_address}, **options) as run:
            run.pipeline()
    return run_dir


TEACHERS = {"v_retrver_curriculum": order, "opensearch_vl_curriculum": answer}


def check_curriculum(run_dir: Path, name: str, num_rounds: int) -> None:
    """The best of the rounds went on to learn while it collected, from pictures, and was compared with what it came from."""
    history = json.loads((run_dir / "rounds" / "history.json").read_text())
    assert len(history) == num_rounds
    identity = json.loads((run_dir / "rl" / "identity.json").read_text())
    best = max(history, key=lambda result: (result["tuned"]["mrr"], -result["number"]))["number"]
    assert identity["config"]["engine"]["adapter"] == str(run_dir / "rounds" / str(best) / "finetune" / "adapter")
    curve = pl.read_ndjson(run_dir / "rl" / "curve.jsonl").filter(pl.col("reward").is_not_null())
    assert curve["step"].to_list() == [1, 2]
    assert curve["rows"].sum() > 0
    rows = [
        json.loads(line) for path in (run_dir / "rl" / "steps").glob("*/rows.jsonl") for line in path.read_text().splitlines()
    ]
    assert name.startswith("opensearch") or any(row["images"] for row in rows)
    results = pl.read_ndjson(run_dir / "evaluate" / "results.jsonl")
    assert set(results["policy"]) == {"question", "base", "tuned", "rl"}
    assert results.height == 4 * NUM_TEST_PARTS
