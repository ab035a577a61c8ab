"""How a model learns from each format of rows: what a row becomes, which model is trained, and by which of TRL's trainers."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from transformers import Trainer
from trl.trainer.dpo_config import DPOConfig
from trl.trainer.kto_config import KTOConfig
from trl.trainer.reward_config import RewardConfig
from trl.trainer.sft_config import SFTConfig

from drag_ray.engine.adapter import REWARD_TASK, WRITING_TASK
from drag_ray.engine.pretrained import load_model, load_reward_model
from drag_ray.finetune.collator import LabelledCollator, PairCollator, RowCollator
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.images import TrainingImages
from drag_ray.finetune.policy_gradient import PolicyGradientTrainer
from drag_ray.finetune.preference import PreferenceTrainer, RewardModelTrainer, WantedTrainer
from drag_ray.finetune.tokenized_rows import (
    TokenizedRows,
    tokenize_labelled,
    tokenize_pairs,
    tokenize_rows,
    tokenize_scored,
    tokenize_steps,
)
from drag_ray.finetune.trained_tokens import (
    SupervisedTrainer,
    TrainedTokensTrainer,
    compute_log_probabilities,
    list_features,
)

Rows = Iterable[dict[str, Any]]


class Supervised:
    """Replies are learned as they stand, each as often as its row's weight says."""

    task = WRITING_TASK

    def __init__(self, config: FinetuneConfig) -> None:
        self.config = config

    def tokenize(self, rows: Rows, tokenizer: Any, images: TrainingImages | None) -> TokenizedRows:
        """Args and errors are those of `tokenize_rows`."""
        return tokenize_rows(rows, tokenizer, self.config.max_length, self.config.mask, images)

    def load_model(self, model: str) -> Any:
        """The base model; errors are those of `load_model` and `load_reward_model`."""
        return load_model(model, self.config.dtype)

    def build_arguments(self, options: dict[str, Any]) -> Any:
        """The trainer's arguments, of which `options` are those that all trainers have."""
        return SFTConfig(**options, dataset_kwargs={"skip_prepare_dataset": True})

    def build_trainer(self, options: dict[str, Any], images: TrainingImages | None) -> Trainer:
        """The trainer.

        Args:
            options: `model`, `args`, `train_dataset`, `eval_dataset`, `processing_class` and `peft_config`, as all trainers take
                them; the datasets hold tokenized rows.
            images: where the rows' page images come from.
        """
        is_weighted = any(weight != 1 for weight in options["train_dataset"]["weight"])
        number = "weight" if is_weighted else None
        options["data_collator"] = RowCollator(options["processing_class"].pad_token_id, images, number=number)
        trainer_class = TrainedTokensTrainer if is_weighted or options["args"].use_cpu else SupervisedTrainer
        return _count_tokens_of_a_step(trainer_class(**options))

    def score(self, model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """What the model makes of a batch of `RowCollator`: the log-probabilities of its trained tokens."""
        return compute_log_probabilities(model, inputs, fused=False)[0]


class PolicyGradient(Supervised):
    """Reinforcement learning: replies become likelier or less likely by how much better than others they were."""

    def tokenize(self, rows: Rows, tokenizer: Any, images: TrainingImages | None) -> TokenizedRows:
        """Args and errors are those of `tokenize_steps`."""
        return tokenize_steps(rows, tokenizer, self.config.max_length, images)

    def build_trainer(self, options: dict[str, Any], images: TrainingImages | None) -> Trainer:
        """Args are those of `Supervised.build_trainer`."""
        options["data_collator"] = RowCollator(options["processing_class"].pad_token_id, images, number="advantage")
        trainer = PolicyGradientTrainer(**options, clip_range=self.config.rl_clip_range, kl_weight=self.config.rl_kl_weight)
        return _count_tokens_of_a_step(trainer)


class Preference(Supervised):
    """DPO: of two replies to a prompt the better one becomes the likelier."""

    def tokenize(self, rows: Rows, tokenizer: Any, images: TrainingImages | None) -> TokenizedRows:
        """Args and errors are those of `tokenize_pairs`."""
        return tokenize_pairs(rows, tokenizer, self.config.max_length, images)

    def build_arguments(self, options: dict[str, Any]) -> DPOConfig:
        """Args are those of `Supervised.build_arguments`."""
        return DPOConfig(**options, beta=self.config.preference_beta)

    def build_trainer(self, options: dict[str, Any], images: TrainingImages | None) -> Trainer:
        """Args are those of `Supervised.build_trainer`."""
        return PreferenceTrainer(**options, data_collator=PairCollator(options["processing_class"].pad_token_id, images))


class Wanted(Supervised):
    """KTO: single replies become likelier or less likely, as they are wanted or not."""

    def tokenize(self, rows: Rows, tokenizer: Any, images: TrainingImages | None) -> TokenizedRows:
        """Args and errors are those of `tokenize_labelled`."""
        return tokenize_labelled(rows, tokenizer, self.config.max_length, images)

    def build_arguments(self, options: dict[str, Any]) -> KTOConfig:
        """Args are those of `Supervised.build_arguments`."""
        return KTOConfig(**options, beta=self.config.preference_beta)

    def build_trainer(self, options: dict[str, Any], images: TrainingImages | None) -> Trainer:
        """Args are those of `Supervised.build_trainer`."""
        # The trainer takes rows in their order, in which those of a question stand together; a batch needs different prompts.
        for name in ("train_dataset", "eval_dataset"):
            options[name] = options[name] and options[name].shuffle(seed=self.config.seed)
        trainer = WantedTrainer(**options, data_collator=LabelledCollator(options["processing_class"].pad_token_id, images))
        trainer.desirable_weight, trainer.undesirable_weight = balance(options["train_dataset"]["is_wanted"])
        return trainer


def balance(is_wanted: Sequence[bool]) -> tuple[float, float]:
    """What a wanted and an unwanted reply count, so that both kinds count alike: the rarer one more than 1, equation 8 of KTO."""
    num_wanted = sum(is_wanted)
    num_unwanted = len(is_wanted) - num_wanted
    if not num_wanted or not num_unwanted:
        return 1.0, 1.0
    return max(1.0, num_unwanted / num_wanted), max(1.0, num_wanted / num_unwanted)


class RewardModelling(Supervised):
    """A model that writes nothing gives the better of two replies the higher number."""

    task = REWARD_TASK

    def tokenize(self, rows: Rows, tokenizer: Any, images: TrainingImages | None) -> TokenizedRows:
        """Args and errors are those of `tokenize_scored`."""
        return tokenize_scored(rows, tokenizer, self.config.max_length, images)

    def load_model(self, model: str) -> Any:
        """Errors are those of `load_reward_model`."""
        return load_reward_model(model, self.config.dtype)

    def build_arguments(self, options: dict[str, Any]) -> RewardConfig:
        """Args are those of `Supervised.build_arguments`."""
        return RewardConfig(**options)

    def build_trainer(self, options: dict[str, Any], images: TrainingImages | None) -> Trainer:
        """Args are those of `Supervised.build_trainer`."""
        collator = PairCollator(options["processing_class"].pad_token_id, images, marks_replies=False)
        return RewardModelTrainer(**options, data_collator=collator)

    def score(self, model: Any, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """The reward of each row."""
        return model(**list_features(inputs)).logits.float()


_METHODS: dict[str, type[Supervised]] = {"dpo": Preference, "kto": Wanted, "reward": RewardModelling, "rl_steps": PolicyGradient}


def build_method(config: FinetuneConfig) -> Supervised:
    """The method of `config.format`."""
    return _METHODS.get(config.format, Supervised)(config)


def _count_tokens_of_a_step(trainer: Trainer) -> Trainer:
    """Let the loss be divided by the trained tokens of a whole step.

    Vision-language models say of themselves that theirs is not, and with gradient accumulation each batch would be divided by
    its own tokens, and weighted ones by the number of batches again.
    """
    trainer.model_accepts_loss_kwargs = True
    return trainer
