"""The shipped curricula, from a teacher's replies by the policy's own to reinforcement learning, with pictures of pages.

The policy is a Qwen3-VL of two layers with random weights, which learns the form of an order in the first round. It does not
learn that of a call, so there the stage rl counts letters. All else but sizes and learning rates is as in the configurations.
"""

from pathlib import Path

import pytest
from curricula import check_curriculum, run_curriculum, write_documents, write_policy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(("name", "num_rounds"), [("v_retrver_curriculum", 2), ("opensearch_vl_curriculum", 1)])
def test_a_curriculum_comes_to_its_end_with_pictures(tmp_path: Path, ray_address: str, name: str, num_rounds: int) -> None:
    write_documents(tmp_path)
    learning = {"learning_rate": 3e-3, "epochs": 12}
    run_dir = run_curriculum(tmp_path, write_policy(tmp_path / "model"), name, ray_address, learning)
    check_curriculum(run_dir, name, num_rounds)
