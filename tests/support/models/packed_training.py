"""A training of one step on rows of very different lengths and weights, packed or padded, in one process or several."""

import os
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from embedded_tokenizer import load_shared_tokenizer
from peft import LoraConfig, PeftModel, get_peft_model
from training_cases import describe_descent
from transformers import LlamaConfig, LlamaForCausalLM
from trl.trainer.sft_config import SFTConfig

from drag_ray.finetune.methods.method import TrainerOptions
from drag_ray.finetune.methods.sft import SFT

LENGTHS = (5, 3, 90, 2, 11, 8, 4, 21)


def build_model() -> LlamaForCausalLM:
    """Two layers with random weights over 50 tokens, with fewer heads of keys than of queries."""
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=50, num_attention_heads=4, num_key_value_heads=2, **shape))


def adapt(model: Any) -> PeftModel:
    """The model with an adapter that changes what it writes."""
    torch.manual_seed(1)
    options = LoraConfig(r=2, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    adapted: Any = get_peft_model(model, options)
    return adapted


def list_rows() -> list[dict[str, Any]]:
    """Rows of `LENGTHS` tokens, the second half of each is learned; of the fifth every token, from the first on."""
    torch.manual_seed(2)
    rows = []
    for place, length in enumerate(LENGTHS):
        tokens = torch.randint(0, 50, (length,)).tolist()
        learned = [-100] * (length // 2) + tokens[length // 2 :]
        labels = tokens if place == 4 else learned
        rows.append(
            {"name": str(place), "input_ids": tokens, "labels": labels, "image_keys": [], "weight": (0.1, 1.0, 3.0)[place % 3]}
        )
    return rows


def build_trainer(model: Any, arguments: SFTConfig, *, packs: bool) -> Any:
    """The trainer of the method on these rows, which are those of the evaluation too."""
    rows = Dataset.from_list(list_rows())
    options: TrainerOptions = {
        "model": model,
        "args": arguments,
        "train_dataset": rows,
        "eval_dataset": rows,
        "processing_class": load_shared_tokenizer(),
        "peft_config": None,
    }
    return SFT(packing=packs).build_trainer(options, None)


def train_in_process(rank: int, port: int, folder: Path) -> None:
    """One of two processes, whose step has two batches of two rows in each."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    arguments = describe_descent(folder / "out", 2, 2, max_steps=1, ddp_backend="gloo")
    trainer = build_trainer(adapt(build_model()), arguments, packs=True)
    trainer.train()
    if rank == 0:
        torch.save((read_loss(trainer), read_adapter(trainer.model)), folder / "after.pt")


def checkpoint_in_process(rank: int, port: int, folder: Path) -> None:
    """One of two processes that take two steps, with a checkpoint after the first; its batches are half of a step's."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    kept: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1, "learning_rate": 0.1}
    build_trainer(
        adapt(build_model()), describe_descent(folder, 2, 1, max_steps=2, ddp_backend="gloo", **kept), packs=True
    ).train()


def read_loss(trainer: Any) -> float:
    """The loss of the step."""
    return next(entry["loss"] for entry in trainer.state.log_history if "loss" in entry)


def read_adapter(model: Any) -> dict[str, torch.Tensor]:
    """A copy of the trained weights."""
    return {name: weight.detach().clone() for name, weight in model.named_parameters() if weight.requires_grad}
