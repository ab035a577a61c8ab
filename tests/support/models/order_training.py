"""A reranker's training of one step, whose questions have very different numbers of evidence pages, in one process or several."""

import os
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from embedded_tokenizer import load_shared_tokenizer
from training_cases import describe_descent
from transformers import LlamaForCausalLM
from trl.trainer.sft_config import SFTConfig

from drag_ray.engine.models.relevance import Answers
from drag_ray.finetune.trainers.page_order import PageOrderTrainer, PagesCollator

NUM_QUESTIONS = 8
YES, NO = 3, 4


def list_questions() -> list[dict[str, Any]]:
    """Eight questions with 1 or 2 evidence pages, but the last with 19, and as many others as fit its place."""
    questions = []
    for place in range(NUM_QUESTIONS):
        kinds = [True] * (19 if place == NUM_QUESTIONS - 1 else 1 + place % 2) + [False] * (1 + place % 3)
        pages = [{"input_ids": [5 + place, 20 + number, 9, YES], "labels": [-100] * 3 + [YES]} for number in range(len(kinds))]
        questions.append({"name": str(place), "pages": pages, "is_evidence": kinds, "image_keys": []})
    return questions


def build_trainer(model: LlamaForCausalLM, arguments: SFTConfig) -> PageOrderTrainer:
    """A trainer on these questions."""
    return PageOrderTrainer(
        model=model,
        args=arguments,
        data_collator=PagesCollator(pad_token_id=0),
        train_dataset=Dataset.from_list(list_questions()),
        processing_class=load_shared_tokenizer(),
        answers=Answers(YES, NO),
    )


def train_in_process(rank: int, port: int, folder: Path) -> None:
    """One of two processes, whose step has two batches of two questions in each."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    arguments = describe_descent(folder / "out", 2, 2, max_steps=1, ddp_backend="gloo")
    trainer: Any = build_trainer(LlamaForCausalLM.from_pretrained(folder / "before"), arguments)
    trainer.train()
    if rank == 0:
        logged = next(entry["loss"] for entry in trainer.state.log_history if "loss" in entry)
        torch.save((logged, trainer.model.state_dict()), folder / "after.pt")
