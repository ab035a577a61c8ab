"""The rows of the format stage are what TRL's trainers take: each trains a tiny model for one step on the CPU."""

import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from datasets import Dataset, load_dataset
from embedded_tokenizer import load_shared_tokenizer
from factories import build_question, build_search, build_trajectory
from peft import LoraConfig
from transformers import (
    DataCollatorWithPadding,
    LlamaConfig,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    Trainer,
    TrainingArguments,
)
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.reward_config import RewardConfig
from trl.trainer.reward_trainer import RewardTrainer
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from drag_ray import schemas
from drag_ray.format.config import FormatConfig
from drag_ray.format.rows import OF_TURNS
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_code
from drag_ray.pipeline.stages import STAGES
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.storage.artifacts import Identity
from drag_ray.types import Evidence

ARGUMENTS: dict[str, Any] = {
    "max_steps": 1,
    "per_device_train_batch_size": 2,
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": "none",
    "save_strategy": "no",
    "disable_tqdm": True,
}
CUT = {**ARGUMENTS, "max_length": 512}


@pytest.fixture(scope="module")
def formatted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a format stage that read four questions of two samples each."""
    run_dir = tmp_path_factory.mktemp("run")
    source = run_dir / "collect" / "trajectories"
    source.mkdir(parents=True)
    records = []
    for number in range(4):
        question = build_question(id=f"q{number}", question=f"Question {number}?", evidence=(Evidence("m.pdf", number + 1),))
        records.append(build_trajectory(build_search("wide"), build_search("exact", 1), question=question))
        records.append(build_trajectory(build_search("good", 2, reasoning="A limit."), question=question, sample_index=1))
    pq.write_table(schemas.to_table(records, schemas.TRAJECTORIES), source / "part-0.parquet")
    config = RunConfig(run_dir=run_dir, format=FormatConfig(validation_fraction=0.25))
    for name in ("process", "format"):
        with StageFolder(run_dir / name, Identity(name, {}, {})) as folder:
            run_code(STAGES[name], config, folder)
    return run_dir / "format"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_shared_tokenizer()


def build_model(model_type: Any, tokenizer: Any, **options: Any) -> Any:
    """A random two-layer Llama over the tokenizer's vocabulary."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        pad_token_id=tokenizer.pad_token_id,
        **options,
    )
    return model_type(config)


def load_rows(folder: Path, suffix: str, cache_dir: Path) -> Dataset:
    builder = {"jsonl": "json", "parquet": "parquet"}[suffix]
    return load_dataset(builder, data_files=str(folder / f"train.{suffix}"), split="train", cache_dir=str(cache_dir))


def build_sft_trainer(rows: Dataset, tokenizer: Any, folder: Path) -> SFTTrainer:
    arguments, model = SFTConfig(output_dir=str(folder), **CUT), build_model(LlamaForCausalLM, tokenizer)
    return SFTTrainer(model=model, args=arguments, train_dataset=rows, processing_class=tokenizer)


def check_one_step(trainer: Any) -> None:
    loss = trainer.train().training_loss
    assert math.isfinite(loss)
    assert loss > 0


@pytest.mark.parametrize("name", OF_TURNS)
def test_datasets_reads_the_same_rows_from_both_files(formatted: Path, name: str, tmp_path: Path) -> None:
    from_jsonl, from_parquet = (load_rows(formatted / name, suffix, tmp_path) for suffix in ("jsonl", "parquet"))
    assert from_jsonl.to_list() == from_parquet.to_list()
    assert from_parquet.num_rows > 0


@pytest.mark.parametrize("name", ["sft_query", "sft_context", "sft_trajectory", "rejection"])
def test_sft_trainer_takes_a_step(formatted: Path, tokenizer: Any, tmp_path: Path, name: str) -> None:
    check_one_step(build_sft_trainer(load_rows(formatted / name, "parquet", tmp_path), tokenizer, tmp_path))


def test_sft_trainer_puts_the_loss_on_the_completion_alone(formatted: Path, tokenizer: Any, tmp_path: Path) -> None:
    rows = load_rows(formatted / "sft_query", "jsonl", tmp_path)
    trainer = build_sft_trainer(rows.select([0]), tokenizer, tmp_path)
    batch = next(iter(trainer.get_train_dataloader()))
    trained = batch["labels"][batch["labels"] != -100]
    assert tokenizer.decode(trained, skip_special_tokens=True).strip() == rows[0]["completion"][0]["content"]


def test_dpo_trainer_takes_a_step_from_an_undecided_start(formatted: Path, tokenizer: Any, tmp_path: Path) -> None:
    trainer = DPOTrainer(
        model=build_model(LlamaForCausalLM, tokenizer),
        args=DPOConfig(output_dir=str(tmp_path), **CUT),
        train_dataset=load_rows(formatted / "dpo", "parquet", tmp_path),
        processing_class=tokenizer,
        peft_config=LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj", "v_proj"]),
    )
    # A new adapter changes nothing, and the model without it is the reference, so the loss is -log sigmoid(0).
    assert trainer.train().training_loss == pytest.approx(math.log(2), abs=1e-3)


def test_reward_trainer_takes_a_step_on_preference_pairs(formatted: Path, tokenizer: Any, tmp_path: Path) -> None:
    trainer = RewardTrainer(
        model=build_model(LlamaForSequenceClassification, tokenizer, num_labels=1),
        args=RewardConfig(output_dir=str(tmp_path), **CUT),
        train_dataset=load_rows(formatted / "dpo", "parquet", tmp_path),
        processing_class=tokenizer,
    )
    check_one_step(trainer)


def test_grpo_trainer_samples_from_the_recorded_prompts_and_passes_the_rewards_on(
    formatted: Path, tokenizer: Any, tmp_path: Path
) -> None:
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer  # it imports vLLM, which no process should that only collects this test

    seen: list[tuple[Any, float]] = []

    def score(prompts: list[Any], completions: list[Any], reward: list[float], **columns: Any) -> list[float | None]:
        seen.extend(zip(prompts, reward, strict=True))
        return [float(place % 2) for place in range(len(completions))]

    rows = load_rows(formatted / "rl_steps", "parquet", tmp_path)
    trainer = GRPOTrainer(
        model=build_model(LlamaForCausalLM, tokenizer),
        args=GRPOConfig(output_dir=str(tmp_path), num_generations=2, max_completion_length=4, **ARGUMENTS),
        reward_funcs=score,
        train_dataset=rows,
        processing_class=tokenizer,
    )
    assert math.isfinite(trainer.train().training_loss)
    recorded = [(row["prompt"], row["reward"]) for row in rows.to_list()]
    assert seen
    assert all(item in recorded for item in seen)


def test_a_classifier_of_one_label_learns_the_scores_of_queries(formatted: Path, tokenizer: Any, tmp_path: Path) -> None:
    rows = load_rows(formatted / "reward", "parquet", tmp_path)

    def encode(row: dict[str, Any]) -> dict[str, Any]:
        text = tokenizer.apply_chat_template(row["prompt"] + row["completion"], tokenize=False)
        return {**tokenizer(text), "labels": row["score"]}

    model = build_model(LlamaForSequenceClassification, tokenizer, num_labels=1, problem_type="regression")
    trainer = Trainer(
        model=model,
        args=TrainingArguments(str(tmp_path), **ARGUMENTS),
        train_dataset=rows.map(encode, remove_columns=rows.column_names),
        data_collator=DataCollatorWithPadding(tokenizer),
    )
    check_one_step(trainer)


def test_the_folder_is_a_dataset_with_a_configuration_for_each_format(formatted: Path, tmp_path: Path) -> None:
    rows = load_dataset(str(formatted), "dpo", split="train", cache_dir=str(tmp_path))
    assert isinstance(rows, Dataset)
    assert rows.column_names[:3] == ["prompt", "chosen", "rejected"]
    assert rows.num_rows == load_rows(formatted / "dpo", "jsonl", tmp_path).num_rows
