"""Reward models that a run has trained."""

from pathlib import Path
from typing import TYPE_CHECKING

from drag_ray.extras import explain_missing

if TYPE_CHECKING:
    from drag_ray.engine.encoders.reward_model import RewardModel


@explain_missing()
def load_reward_model(folder: str | Path) -> "RewardModel":
    """A model that `finetune` has trained with the method `reward`: `score(messages, replies)` gives a number for each reply.

    Args:
        folder: of the whole model, as `runs/mine/finetune/merged`.

    Raises:
        TrainError: there is no reward model.

    Examples:
        >>> drag_ray.load_reward_model("runs/small/finetune/merged")
        Traceback (most recent call last):
        drag_ray.errors.TrainError: runs/small/finetune/merged: no reward model. Run: python jobs/finetune.py ...
    """
    from drag_ray.engine.encoders.reward_model import RewardModel

    return RewardModel(Path(folder))
