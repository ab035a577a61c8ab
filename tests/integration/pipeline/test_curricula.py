"""The shipped curricula, from a teacher's replies by the policy's own to reinforcement learning, with pictures of pages.

The policy is a Qwen3-VL of two layers with random weights, which learns the form of an order in the first round. It does not
learn that of a call, so there the stage rl counts letters. All else but sizes and learning rates is as in the configurations.
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from curricula import check_curriculum, run_curriculum, write_documents
from embedded_tokenizer import write_tokenizer
from qwen3_vl_shapes import SHAPES_TINY, write_model
from transformers import AutoConfig, Qwen3VLForConditionalGeneration

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


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


@pytest.mark.parametrize(("name", "num_rounds"), [("v_retrver_curriculum", 2), ("opensearch_vl_curriculum", 1)])
def test_a_curriculum_comes_to_its_end_with_pictures(tmp_path: Path, ray_address: str, name: str, num_rounds: int) -> None:
    write_documents(tmp_path)
    learning = {"learning_rate": 3e-3, "epochs": 12}
    run_dir = run_curriculum(tmp_path, write_policy(tmp_path / "model"), name, ray_address, learning)
    check_curriculum(run_dir, name, num_rounds)
