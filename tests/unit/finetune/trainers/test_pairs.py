"""A pair whose prompt is computed once teaches what two rows of their own teach."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from datasets import Dataset
from embedded_tokenizer import load_shared_tokenizer
from peft import LoraConfig, get_peft_model
from training_cases import SHAPE
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification, MistralConfig

from drag_ray.engine.models.tokens import IGNORED_LABEL
from drag_ray.finetune.methods.dpo import DPO
from drag_ray.finetune.methods.method import AdapterMethod
from drag_ray.finetune.methods.reward import RewardModelling
from drag_ray.finetune.trainers.collator import PairCollator
from drag_ray.finetune.trainers.shared_prefixes import share_prompts, unfold_mask

SIZES = [(60, 3, 11), (17, 9, 2), (41, 5, 5)]
"""Tokens of each pair's prompt and replies."""


def build_pairs() -> list[dict[str, Any]]:
    torch.manual_seed(3)
    pairs = []
    for number, (of_prompt, *of_replies) in enumerate(SIZES):
        prompt = torch.randint(1, 50, (of_prompt,)).tolist()
        replies = [torch.randint(1, 50, (size,)).tolist() for size in of_replies]
        sides = [{"input_ids": prompt + reply, "labels": [IGNORED_LABEL] * of_prompt + reply} for reply in replies]
        pairs.append({"name": str(number), "chosen": sides[0], "rejected": sides[1], "image_keys": []})
    return pairs


def build_trainer(method: AdapterMethod, arguments: Any) -> Any:
    """With an adapter that has already moved from the start, and differs in each number."""
    torch.manual_seed(0)
    shape: dict[str, Any] = SHAPE | {"vocab_size": 50, "pad_token_id": 0, "num_labels": 1}
    kind: Any = LlamaForSequenceClassification if isinstance(method, RewardModelling) else LlamaForCausalLM
    adapter = LoraConfig(r=2, target_modules=["q_proj", "down_proj"], task_type=method.task, init_lora_weights=False)
    model: Any = get_peft_model(kind(LlamaConfig(**shape)), adapter)
    rows = Dataset.from_list(build_pairs())
    return method.build_trainer(
        {
            "model": model,
            "args": method.build_arguments(arguments),
            "train_dataset": rows,
            "eval_dataset": rows,
            "processing_class": load_shared_tokenizer(),
            "peft_config": None,
        },
        None,
    )


def test_a_pair_has_its_prompt_once_and_a_reply_sees_it_and_itself() -> None:
    pair = {"chosen": {"input_ids": [1, 2, 3, 4], "labels": [-100, -100, -100, 4]}}
    pair["rejected"] = {"input_ids": [1, 2, 3, 5, 6], "labels": [-100, -100, -100, 5, 6]}
    other = {side: {"input_ids": [7, 8, 9], "labels": [-100, -100, 9]} for side in pair}
    batch = share_prompts([pair, other], 0)
    assert batch is not None
    assert batch["input_ids"].tolist() == [[1, 2, 3, 4, 3, 5, 6], [7, 8, 9, 8, 9, 0, 0]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 3, 2, 3, 4], [0, 1, 2, 1, 2, 0, 0]]
    assert batch["rows"].tolist() == [[0, 0, 0, 0, 2, 2, 2], [1, 1, 1, 3, 3, -1, -1]]
    assert batch["attention_mask"].sum() == 4 + 5 + 3 + 3
    sees = unfold_mask(batch)[0, 0].int().tolist()
    assert sees[3] == [1, 1, 1, 1, 0, 0, 0]
    assert sees[5] == [1, 1, 0, 0, 1, 1, 0]


def test_pairs_that_share_little_stay_in_rows_of_their_own() -> None:
    long = [
        {"input_ids": [1, *range(9)], "labels": [-100, *range(9)]},
        {"input_ids": [1, *range(8)], "labels": [-100, *range(8)]},
    ]
    pair = {"chosen": long[0], "rejected": long[1], "image_keys": []}
    assert share_prompts([pair], 0) is None
    assert PairCollator(0, shares=True)([pair])["rows"].tolist() == [[0] * 10, [1] * 10]


@pytest.mark.seconds
@pytest.mark.parametrize("method", [DPO(), RewardModelling()], ids=["dpo", "reward"])
def test_it_teaches_and_measures_what_rows_of_their_own_do(method: AdapterMethod, build_descent: Callable[..., Any]) -> None:
    options = build_descent(3, 1, max_steps=1).to_dict()
    names = ("output_dir", "per_device_train_batch_size", "use_cpu", "bf16", "remove_unused_columns", "report_to", "max_length")
    arguments = {name: options[name] for name in (*names, "learning_rate", "optim", "max_grad_norm", "gradient_checkpointing")}
    counting = {"include_num_input_tokens_seen": "non_padding", "num_train_epochs": 1, "logging_steps": 1, "save_strategy": "no"}
    found, trained = [], []
    for shares in (True, False):
        trainer = build_trainer(method, arguments | counting)
        assert trainer.data_collator.args[0]._shares
        trainer.data_collator.args[0]._shares = shares
        start = copy.deepcopy({name: weight.data for name, weight in trainer.model.named_parameters() if weight.requires_grad})
        evaluation = trainer.evaluate()
        trainer.train()
        after = dict(trainer.model.named_parameters())
        trained.append({name: after[name].data - weight for name, weight in start.items()})
        logged = next(entry for entry in trainer.state.log_history if "loss" in entry)
        noted = [logged["loss"], *(logged[f"rewards/{name}"] for name in ("chosen", "rejected", "margins", "accuracies"))]
        found.append([evaluation["eval_loss"], *noted])
        assert trainer.state.num_input_tokens_seen == sum(2 * prompt + one + other for prompt, one, other in SIZES)
    assert found[0] == pytest.approx(found[1], abs=1e-4)
    assert max(change.abs().max() for change in trained[0].values()) > 1e-3
    torch.testing.assert_close(trained[0], trained[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("window", "shares"), [(None, True), (8, False)])
def test_models_that_do_not_see_the_whole_context_keep_their_rows(
    window: int | None, shares: bool, build_descent: Callable[..., Any]
) -> None:
    model = AutoModelForCausalLM.from_config(MistralConfig(**SHAPE, sliding_window=window))
    rows = Dataset.from_list(build_pairs())
    trainer: Any = DPO().build_trainer(
        {
            "model": model,
            "args": build_descent(3, 1, max_steps=1),
            "train_dataset": rows,
            "eval_dataset": None,
            "processing_class": load_shared_tokenizer(),
            "peft_config": LoraConfig(target_modules=["q_proj"]),
        },
        None,
    )
    assert trainer.data_collator.args[0]._shares is shares


def test_pairs_whose_mask_would_be_too_large_keep_two_rows() -> None:
    replies = {"chosen": 2, "rejected": 3}.items()

    def build(num_shared: int) -> dict[str, Any]:
        return {
            name: {"input_ids": [*[1] * num_shared, reply], "labels": [*[-100] * num_shared, reply]} for name, reply in replies
        }

    assert share_prompts([build(8_189)], 0) is not None
    assert share_prompts([build(8_190)], 0) is None
