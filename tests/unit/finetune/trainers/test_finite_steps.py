"""A step that is not finite is not learned from: real trainers, with gradients that break."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from datasets import Dataset
from embedded_tokenizer import load_shared_tokenizer
from peft import LoraConfig, get_peft_model
from transformers import LlamaForCausalLM, TrainerCallback
from trl.trainer.sft_config import SFTConfig

from drag_ray.errors import NotFiniteError
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.trainers.collator import RowCollator
from drag_ray.finetune.trainers.trained_tokens import TrainedTokensTrainer

pytestmark = pytest.mark.seconds


@pytest.mark.parametrize("rate", [float("inf"), float("nan")])
def test_a_learning_rate_that_is_not_finite_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"learning_rate"):
        FinetuneConfig(learning_rate=rate)


ROWS = [
    {"name": str(number), "input_ids": [5, 6, 7, 8, number], "labels": [-100, -100, 7, 8, number], "weight": 1.0}
    for number in range(8)
]


def build_trainer(model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig], **options: Any) -> Any:
    """A trainer of a LoRA adapter on the small model."""
    torch.manual_seed(0)
    fresh = type(model)(model.config)
    return TrainedTokensTrainer(
        model=get_peft_model(fresh, LoraConfig(r=2, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")),
        args=build_descent(batch_size=2, accumulation=2, max_steps=2, **options),
        data_collator=RowCollator(pad_token_id=0, number="weight"),
        train_dataset=Dataset.from_list(ROWS),
        processing_class=load_shared_tokenizer(),
    )


def copy_weights(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}


def test_nothing_is_learned_from_a_gradient_that_is_not_finite(
    model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig]
) -> None:
    trainer = build_trainer(model, build_descent)
    before = copy_weights(trainer)
    broken = next(weight for name, weight in trainer.model.named_parameters() if "lora_B" in name)
    broken.register_hook(lambda gradient: torch.full_like(gradient, torch.nan))  # what cuDNN's attention did to q_proj
    with pytest.raises(NotFiniteError, match=r"finetune step 1: loss \d\.\d+, gradient norm nan") as caught:
        trainer.train()
    assert str(caught.value).count(", ") >= 4  # the four rows of both batches
    torch.testing.assert_close(copy_weights(trainer), before, rtol=0, atol=0)


class _BreakWeights(TrainerCallback):
    """Stands for a step that overflows: what it leaves is not finite, though its gradient was."""

    def on_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        next(weight for name, weight in model.named_parameters() if "lora_A" in name).data[0, 0] = torch.inf

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        pytest.fail("a broken checkpoint was reported")


def test_a_checkpoint_whose_weights_are_not_finite_is_not_reported(
    model: LlamaForCausalLM, build_descent: Callable[..., SFTConfig]
) -> None:
    trainer = build_trainer(model, build_descent, save_strategy="steps", save_steps=1)
    trainer.add_callback(_BreakWeights())
    with pytest.raises(NotFiniteError, match=r"finetune step 1: its gradient was finite, and .*lora_A.* no longer is"):
        trainer.train()
