"""Files of the finetune stage's folder that readers find: adapters, the card beside one, and the learning curve."""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import ModelCard

from drag_ray.cluster.metrics import StageRecorder
from drag_ray.engine.models.adapter import BaseModel
from drag_ray.engine.models.relevance import RerankerNote, write_note
from drag_ray.finetune import curve, training_folder
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.curve import ReportCallback, build_curve
from drag_ray.finetune.outputs.publication import _OF_ADAPTER, write_card
from drag_ray.storage import artifacts
from drag_ray.storage.artifacts import compute_file_fingerprint

CURVE = [{"step": 1, "loss": 2.5}, {"step": 2, "eval_loss": 2.25}]


def write_adapter(finetune_dir: Path, task: str) -> None:
    artifacts.write_json(finetune_dir / training_folder.ADAPTER_DIR_NAME / "adapter_config.json", {"task_type": task})


def test_nothing_is_found_before_anything_was_written_and_the_curve_is_read_as_it_was(tmp_path: Path) -> None:
    (tmp_path / training_folder.ADAPTER_DIR_NAME).mkdir()
    for folder in (None, tmp_path):
        assert training_folder.find_adapter(folder) is None
        assert training_folder.find_merged(folder) is None
        assert not training_folder.has_reward_model(folder)
        assert training_folder.read_curve(folder) == []
    artifacts.write_jsonl(tmp_path / training_folder.CURVE_NAME, CURVE)
    assert training_folder.read_curve(tmp_path) == CURVE


def test_an_adapter_is_what_it_says_a_reranker_or_a_reward_model_or_one_that_writes(tmp_path: Path) -> None:
    write_adapter(tmp_path, "CAUSAL_LM")
    (tmp_path / training_folder.MERGED_DIR_NAME).mkdir()
    assert training_folder.find_adapter(tmp_path) == tmp_path / "adapter"
    assert training_folder.find_merged(tmp_path) == tmp_path / "merged"
    assert not training_folder.has_reward_model(tmp_path)
    assert training_folder.find_reranker(tmp_path) is None
    write_adapter(tmp_path, "CAUSAL_LM")
    write_note(tmp_path / training_folder.ADAPTER_DIR_NAME, RerankerNote(instruction="Find the page."))
    assert training_folder.find_reranker(tmp_path) == tmp_path / "adapter"
    assert not training_folder.has_reward_model(tmp_path)
    write_adapter(tmp_path, "SEQ_CLS")
    assert training_folder.has_reward_model(tmp_path)


COUNTS = {"rows": 594, "steps": 30, "first_loss": 2.5, "last_loss": 1.25, "eval_loss_before": None}


def read_card(folder: Path, base_name: str) -> ModelCard:
    (folder / "adapter_model.safetensors").write_bytes(b"weights")
    base = BaseModel(base_name, "base-fingerprint", 64, 2)
    write_card(folder, _OF_ADAPTER, FinetuneConfig(method="dpo"), base, COUNTS, {"format": "rows-fingerprint"})
    return ModelCard.load(folder / "README.md")


def test_a_card_is_read_by_the_hub_and_says_what_the_adapter_is(tmp_path: Path) -> None:
    card = read_card(tmp_path, "Qwen/Qwen3-VL-8B-Instruct")
    assert card.data.to_dict()["base_model"] == "Qwen/Qwen3-VL-8B-Instruct"
    assert (card.data.to_dict()["library_name"], card.data.to_dict()["tags"]) == ("peft", ["lora", "drag_ray", "dpo"])
    weights = compute_file_fingerprint(tmp_path / "adapter_model.safetensors")
    for words in (weights, "base-fingerprint", "rows-fingerprint", "| rows | 594 |", "| last_loss | 1.25 |", "learning_rate"):
        assert words in card.text, words
    assert "| eval_loss_before | not measured |" in card.text


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_card_names_the_embedded_model_by_its_origin_and_no_folder(tmp_path: Path, is_folder: bool) -> None:
    (tmp_path / "secret-path" / "my-model").mkdir(parents=True)
    card = read_card(tmp_path, str(tmp_path / "secret-path" / "my-model") if is_folder else "embedded")
    assert card.data.to_dict().get("base_model") == (None if is_folder else "HuggingFaceTB/SmolLM2-135M-Instruct")
    assert "secret-path" not in card.content


class Recorder(StageRecorder):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.progress: list[tuple[str, int, int | None]] = []
        self.points: list[dict[str, float]] = []

    def set_progress(self, item: str, num_done: int, num_planned: int | None = None) -> None:
        self.progress.append((item, num_done, num_planned))

    def set_point(self, point: Mapping[str, float]) -> None:
        self.points.append({name: point[name] for name in ("loss", "eval_loss", "tokens") if name in point})


def test_the_curve_has_steps_and_evaluations_and_nothing_else() -> None:
    log_history = [
        {"eval_loss": 3.0, "eval_runtime": 1.0, "step": 0, "epoch": 0, "num_input_tokens_seen": 0},
        {"loss": 2.5, "entropy": 1.0, "step": 1, "epoch": 0.5, "learning_rate": 0.1, "num_input_tokens_seen": 40, "seconds": 2.0},
        {"train_runtime": 9.0, "step": 1},
    ]
    assert build_curve(log_history) == [
        {"step": 0, "epoch": 0, "eval_loss": 3.0, "tokens": 0},
        {"step": 1, "epoch": 0.5, "loss": 2.5, "learning_rate": 0.1, "tokens": 40, "seconds": 2.0},
    ]


def test_time_goes_on_after_a_restart_and_a_reported_checkpoint_is_removed(tmp_path: Path) -> None:
    reports: list[tuple[dict[str, Any], Path]] = []
    recorder = Recorder()
    callback = ReportCallback(lambda metrics, checkpoint_dir: reports.append((metrics, checkpoint_dir)), {"rows": 3}, recorder)
    state = SimpleNamespace(
        global_step=4, max_steps=8, is_world_process_zero=False, log_history=[{"loss": 2.0, "step": 4, "seconds": 100.0}]
    )
    arguments = SimpleNamespace(output_dir=str(tmp_path))
    callback.on_train_begin(arguments, state, None)
    state.log_history.append({"loss": 1.0, "step": 5, "epoch": 1.0})
    state.global_step = 5
    callback.on_log(arguments, state, None)
    checkpoint_dir = tmp_path / "checkpoint-5"
    checkpoint_dir.mkdir()
    callback.on_save(arguments, state, None)
    [(metrics, reported_dir)] = reports
    assert reported_dir == checkpoint_dir
    assert metrics == {"step": 5, "epoch": 1.0, "loss": 1.0, "seconds": metrics["seconds"], "rows": 3}
    assert 100.0 <= metrics["seconds"] < 101.0
    assert not checkpoint_dir.exists()
    assert recorder.progress == []  # one process of the group records


def test_the_time_left_leaves_out_the_first_evaluation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(curve.time, "monotonic", lambda: now)
    recorder = Recorder()
    callback = ReportCallback(lambda metrics, checkpoint_dir: None, {}, recorder)
    state = SimpleNamespace(global_step=0, max_steps=4, is_world_process_zero=True, log_history=[])
    callback.on_train_begin(None, state, None)
    now = 100.0
    state.log_history.append({"eval_loss": 0.69314, "eval_rewards/accuracies": 0.25, "step": 0})
    callback.on_log(None, state, None)
    callback.on_step_begin(None, state, None)
    now = 102.0
    state.global_step = 1
    state.log_history.append({"loss": 0.5, "rewards/accuracies": 0.75, "step": 1, "num_input_tokens_seen": 7})
    callback.on_log(None, state, None)
    assert capsys.readouterr().out.splitlines() == [
        "finetune step 0/4: eval_loss 0.6931, 25% of pairs right",
        "finetune step 1/4: loss 0.5000, 7 tokens, 0:06 left",
    ]
    assert [point.get("pair_accuracy") for point in build_curve(state.log_history)] == [None, 0.75]
    assert state.log_history[-1]["seconds"] == 102.0
    assert recorder.progress == [("steps", 0, 4), ("steps", 1, 4)]
    assert recorder.points == [{"eval_loss": 0.69314}, {"loss": 0.5, "tokens": 7}]
