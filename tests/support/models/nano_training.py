"""Trainings of a model of two layers with random weights, of which one can be seen to have learned."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from embedded_tokenizer import VOCABULARY, write_tokenizer
from training_cases import describe_job
from transformers import LlamaConfig, LlamaForCausalLM

from drag_ray.engine.config import EngineConfig
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.pipeline.run_config import RunConfig

CHECKPOINT_STEPS = 20  # the first checkpoint is noted seconds before the end, also on a fast machine


def make_nano_model(folder: Path, hidden_size: int) -> Path:
    torch.manual_seed(0)
    config = LlamaConfig(
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        vocab_size=VOCABULARY,
        tie_word_embeddings=True,
        initializer_range=0.2,  # with the usual 0.02 so small a model can only write all words about equally often
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


def write_split(run_dir: Path, kind: str, rows: list[dict[str, Any]], num_train_rows: int) -> None:
    folder = run_dir / "format" / kind
    folder.mkdir(parents=True)
    for name, part in (("train", rows[:num_train_rows]), ("validation", rows[num_train_rows:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))


def say(role: str, content: str) -> list[dict[str, str]]:
    return [{"role": role, "content": content}]


def write_rows(run_dir: Path, num_rows: int) -> None:
    rows = [
        {"prompt": say("user", f"Where is thing {number}?"), "completion": say("assistant", "<search>thing</search>")}
        for number in range(num_rows + 4)
    ]
    write_split(run_dir, "sft_query", rows, num_rows)


def make_config(run_dir: Path, model: Path, start_dir: Path | None = None, **options: Any) -> RunConfig:
    defaults = {
        "epochs": 1,
        "batch_size": 2,
        "checkpoint_steps": CHECKPOINT_STEPS,
        "dtype": "float32",
        "learning_rate": 0.02,
        "device": "cpu",
    }
    settings = FinetuneConfig.model_validate(defaults | options)
    engine = EngineConfig(model=str(model), adapter=str(start_dir or ""))
    return RunConfig(run_dir=run_dir, finetune=settings, engine=engine)


def train_alone(
    run_dir: Path, model: Path, start_dir: Path | None = None, **options: Any
) -> tuple[dict[str, int], list[dict[str, Any]]]:
    """Counts and curve of a training as the stage's process does it, without Ray. The adapter is `run_dir / "adapter"`."""
    # Most who make such a model train it elsewhere, and would wait for these imports.
    from drag_ray.finetune.rows.training_rows import tokenize_training_rows
    from drag_ray.finetune.trainer import train

    settings = make_config(run_dir, model, **options).finetune
    job = describe_job(settings, model, run_dir / "format" / settings.chosen_method.row_format, start_dir=start_dir)
    outcome = train(
        job,
        tokenize_training_rows(job),
        lambda metrics, checkpoint_dir: shutil.copytree(checkpoint_dir, run_dir / "adapter", dirs_exist_ok=True),
        None,
    )
    return outcome["counts"], outcome["curve"]


def kill_a_worker_after_the_first_checkpoint(run_dir: Path, killed: list[dict[str, str]]) -> None:
    """`killed`: takes its environment."""
    deadline = time.monotonic() + 200
    snapshot = run_dir / "finetune" / "checkpoints" / "checkpoint_manager_snapshot.json"
    while time.monotonic() < deadline:
        if snapshot.exists() and "checkpoint_2" in snapshot.read_text():  # Ray has noted it, so it can be gone on from
            for process in psutil.Process().children(recursive=True):
                if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::RayTrainWorker"):
                    killed.append(process.environ())
                    process.kill()
                    return
        time.sleep(0.05)
