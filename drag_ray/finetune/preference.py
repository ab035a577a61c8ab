"""TRL's trainer of preference pairs (DPO, https://arxiv.org/abs/2305.18290) on pairs that are tokenized already."""

from typing import Any

from trl.trainer.dpo_trainer import DPOTrainer


class PreferenceTrainer(DPOTrainer):
    """`DPOTrainer` on batches of `PairCollator`. The policy that the adapter starts from is the reference.

    TRL would tokenize a prompt together with its reply; here both have the tokens that the model is given, and writes, when it
    serves.
    """

    def _prepare_dataset(self, dataset: Any, processing_class: Any, args: Any, dataset_name: str) -> Any:
        return dataset
