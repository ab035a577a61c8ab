"""What readers find in the finetune stage's folder."""

from pathlib import Path

from drag_ray.engine.models.relevance import RerankerNote, write_note
from drag_ray.finetune import outcome
from drag_ray.storage import artifacts

CURVE = [{"step": 1, "loss": 2.5}, {"step": 2, "eval_loss": 2.25}]


def write_adapter(finetune_dir: Path, task: str) -> None:
    artifacts.write_json(finetune_dir / outcome.ADAPTER_DIR_NAME / "adapter_config.json", {"task_type": task})


def test_nothing_is_found_before_the_stage_was_started_nor_before_it_has_written(tmp_path: Path) -> None:
    (tmp_path / outcome.ADAPTER_DIR_NAME).mkdir()
    for folder in (None, tmp_path):
        assert outcome.find_adapter(folder) is None
        assert outcome.find_merged(folder) is None
        assert not outcome.has_reward_model(folder)
        assert outcome.read_curve(folder) == []


def test_an_adapter_that_writes_is_no_reward_model(tmp_path: Path) -> None:
    write_adapter(tmp_path, "CAUSAL_LM")
    (tmp_path / outcome.MERGED_DIR_NAME).mkdir()
    assert outcome.find_adapter(tmp_path) == tmp_path / "adapter"
    assert outcome.find_merged(tmp_path) == tmp_path / "merged"
    assert not outcome.has_reward_model(tmp_path)
    assert outcome.find_reranker(tmp_path) is None


def test_a_reranker_is_the_adapter_that_says_so(tmp_path: Path) -> None:
    write_adapter(tmp_path, "CAUSAL_LM")
    write_note(tmp_path / outcome.ADAPTER_DIR_NAME, RerankerNote(instruction="Find the page."))
    assert outcome.find_reranker(tmp_path) == tmp_path / "adapter"
    assert not outcome.has_reward_model(tmp_path)


def test_a_reward_model_is_the_adapter_that_gives_numbers_merged_or_not(tmp_path: Path) -> None:
    write_adapter(tmp_path, "SEQ_CLS")
    assert outcome.has_reward_model(tmp_path)


def test_the_curve_is_read_as_it_was_written(tmp_path: Path) -> None:
    artifacts.write_jsonl(tmp_path / outcome.CURVE_NAME, CURVE)
    assert outcome.read_curve(tmp_path) == CURVE
