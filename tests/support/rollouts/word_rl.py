"""Reinforcement learning of queries of a word each, with the real engine and model, and what has to be true of it at its end."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from factories import build_page, build_question
from small_index import finish_index

from drag_ray.rl.learning import list_policies, locate_policy, locate_step
from drag_ray.rollout.journal import read_trajectories
from drag_ray.stage_runs.damage import verify_stage
from drag_ray.types import Evidence

WORDS = ("rotor", "spar", "valve", "pump", "flap", "wheel", "strut", "brake", "hinge", "gauge")
STEPS = 3
OPTIONS: dict[str, Any] = {
    "agent": {
        **{"max_iterations": 1, "max_tokens": 12, "thinking": False, "query_mode": "rewrite"},
        "examples": [
            {"question": "Where is the mast drawn?", "query": "mast"},
            {"question": "Where is the oar painted?", "query": "oar wood"},
        ],
    },
    "engine": {"device": "cpu", "dtype": "float32", "max_model_len": 1024, "max_num_seqs": 16, "enforce_eager": True},
    "rollout": {"concurrent_rollouts": 4, "chunk_rollouts": 2, "flush_s": 0, "workers_per_engine": 1},
    "format": {"validation_fraction": 0.2},
    "finetune": {
        **{"device": "cpu", "dtype": "float32", "learning_rate": 2e-3, "lora_r": 4, "warmup_ratio": 0.0, "merge": False},
        **{"target_modules": ["q_proj", "v_proj"], "batch_size": 2},
    },
    "rl": {
        "steps": STEPS,
        "questions_per_step": 2,
        "samples_per_question": 2,
        "refills": 1,
        "validation_steps": 3,
        "max_without_search": 1.0,
    },
}


def write_index(run_dir: Path) -> None:
    """Pages of some words each, of which a question has one in common with its page alone."""
    pages = [build_page(file="a.pdf", page_number=number, text=f"The {word} is here.") for number, word in enumerate(WORDS, 1)]
    questions = [
        build_question(id=word, question=f"Where is the {word} shown?", evidence=(Evidence("a.pdf", number),), split="train")
        for number, word in enumerate(WORDS, start=1)
    ]
    finish_index(run_dir, pages, questions)


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def read_rollouts(stage_dir: Path, step: int) -> dict[str, tuple[str, str]]:
    """Of each rollout when it was begun, and the policy that it was drawn from."""
    rows = read_trajectories(locate_step(stage_dir, step)).to_pylist()
    return {row["id"]: (row["provenance"]["started_at"], row["provenance"]["adapter"]) for row in rows}


def check_course(stage_dir: Path) -> None:
    """No group of a finished run was skipped, and none trained twice."""
    ledger = read_lines(stage_dir / "steps.jsonl")
    assert [entry["step"] for entry in ledger if entry["event"] == "trained"] == list(range(1, STEPS + 1))
    drawn = [name for entry in ledger if entry["event"] == "drawn" for name in entry["questions"]]
    assert max(Counter(drawn[:8]).values()) == 1  # the eight that are trained on all come before any comes again
    for step in range(1, STEPS + 1):
        of_step = [name for entry in ledger if entry["event"] == "drawn" and entry["step"] == step for name in entry["questions"]]
        rollouts = read_rollouts(stage_dir, step)
        assert {name.partition("/")[0] for name in rollouts} == set(of_step)
        assert len(rollouts) == 2 * len(of_step)
        assert {adapter for _, adapter in rollouts.values()} == {str(locate_policy(stage_dir, step - 1))}
        rows = read_lines(locate_step(stage_dir, step) / "rows.jsonl")
        assert {row["trajectory_id"] for row in rows} <= rollouts.keys()
    assert list_policies(stage_dir) == [STEPS]
    verify_stage(stage_dir)
