"""A model small enough to compute every loss by hand, and a trainer's options with which a step is easy to foretell."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from embedded_tokenizer import load_shared_tokenizer
from training_cases import describe_descent
from transformers import LlamaConfig, LlamaForCausalLM
from trl.trainer.sft_config import SFTConfig


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
    return load_shared_tokenizer()


@pytest.fixture
def build_descent(tmp_path: Path) -> Callable[..., SFTConfig]:
    """`describe_descent` in a folder of the test."""
    return partial(describe_descent, tmp_path)
