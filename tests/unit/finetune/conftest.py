"""A model small enough to compute every loss by hand, and a trainer's options with which a step is easy to foretell."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM
from trl.trainer.sft_config import SFTConfig

from drag_ray.engine.embedded import embedded_model_dir


@pytest.fixture(scope="package")
def model() -> LlamaForCausalLM:
    """Two layers with random weights over 50 tokens; copy it before training it."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1
    )
    return LlamaForCausalLM(config)


@pytest.fixture(scope="package")
def tokenizer() -> Any:
    """The tokenizer of the embedded model."""
    return AutoTokenizer.from_pretrained(embedded_model_dir())


@pytest.fixture
def build_descent(tmp_path: Path) -> Callable[..., SFTConfig]:
    """Options of plain gradient descent: the first step takes the gradient away from the weights, and nothing else."""

    def build(batch_size: int, accumulation: int, **options: Any) -> SFTConfig:
        options = {"save_strategy": "no", "learning_rate": 1.0} | options
        return SFTConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=batch_size,
            gradient_accumulation_steps=accumulation,
            optim="sgd",
            max_grad_norm=0.0,
            logging_steps=1,
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            max_length=None,
            dataset_kwargs={"skip_prepare_dataset": True},
            remove_unused_columns=False,
            report_to="none",
            disable_tqdm=True,
            **options,
        )

    return build
