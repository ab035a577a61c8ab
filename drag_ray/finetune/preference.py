"""TRL's trainers of preference pairs, on pairs that are tokenized already.

TRL would tokenize a prompt together with its reply; here both have the tokens that the model is given, and writes, when it
serves.
"""

from typing import Any

from trl.trainer.dpo_trainer import DPOTrainer
from trl.trainer.reward_trainer import RewardTrainer


class _TokenizedPairs:
    """Lets a trainer of TRL take the pairs as they are."""

    def _prepare_dataset(self, dataset: Any, processing_class: Any, args: Any, dataset_name: str) -> Any:
        return dataset


class PreferenceTrainer(_TokenizedPairs, DPOTrainer):
    """DPO (https://arxiv.org/abs/2305.18290) on batches of `PairCollator`. The policy that the adapter starts from is the
    reference.
    """


class RewardModelTrainer(_TokenizedPairs, RewardTrainer):
    """A reward model after Bradley and Terry (https://arxiv.org/abs/2203.02155, equation 1) on batches of `PairCollator`."""
