"""TRL's trainers of preferences, on pairs and labelled replies that are tokenized already.

TRL would tokenize a prompt together with its reply; here both have the tokens that the model is given, and writes, when it
serves.
"""

from typing import Any

from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.kto_trainer import KTOTrainer
from trl.trainer.reward_trainer import RewardTrainer

from drag_ray.finetune.finite_steps import FiniteSteps


class _Tokenized(FiniteSteps):
    """Lets a trainer of TRL take the rows as they are."""

    def _prepare_dataset(self, dataset: Any, processing_class: Any, args: Any, dataset_name: str) -> Any:
        return dataset


class PreferenceTrainer(_Tokenized, DPOTrainer):
    """DPO (https://arxiv.org/abs/2305.18290) on batches of `PairCollator`. The policy that the adapter starts from is the
    reference.
    """


class WantedTrainer(_Tokenized, KTOTrainer):
    """KTO (https://arxiv.org/abs/2402.01306) on batches of `LabelledCollator`. The reference is that of
    `PreferenceTrainer`.
    """


class RewardModelTrainer(_Tokenized, RewardTrainer):
    """A reward model after Bradley and Terry (https://arxiv.org/abs/2203.02155, equation 1) on batches of `PairCollator`."""
