"""A reward model at work, with random weights: its numbers are those of reading each conversation by itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from drag_ray.engine.embedded import embedded_model_dir
from drag_ray.errors import TrainError
from drag_ray.finetune.model import load_reward_model
from drag_ray.finetune.reward_model import RewardModel

PROMPT = [{"role": "system", "content": "Search."}, {"role": "user", "content": "Where is the pump?"}]
REPLIES = ["<search>pump</search>", "<search>fuel pump location</search>", "<search>where</search>"]
SHAPES: dict[str, Any] = {
    "vocab_size": 49152,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.3,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("reward")
    tokenizer = AutoTokenizer.from_pretrained(embedded_model_dir())
    config = LlamaConfig(**SHAPES, num_labels=1, pad_token_id=tokenizer.pad_token_id)
    model = LlamaForSequenceClassification(config)
    model.score.weight.data *= 10
    model.bfloat16().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_replies_to_one_prompt_have_the_rewards_of_their_conversations(folder: Path) -> None:
    tokenizer, model = AutoTokenizer.from_pretrained(folder), load_reward_model(folder, "bfloat16").eval()
    rewards = RewardModel(folder).score(PROMPT, REPLIES)
    for reply, reward in zip(REPLIES, rewards, strict=True):
        conversation = [*PROMPT, {"role": "assistant", "content": reply}]
        ids = tokenizer.apply_chat_template(conversation, return_tensors="pt", return_dict=True)["input_ids"]
        with torch.no_grad():
            assert reward == pytest.approx(model(ids).logits.item(), abs=0.1)  # bfloat16, in another order
    assert max(rewards) - min(rewards) > 1
    assert RewardModel(folder).score(PROMPT, REPLIES[::-1]) == pytest.approx(rewards[::-1], abs=0.1)


def test_a_model_that_writes_is_no_reward_model(tmp_path: Path) -> None:
    LlamaForCausalLM(LlamaConfig(**SHAPES)).save_pretrained(tmp_path)
    with pytest.raises(TrainError, match=r"no reward model.*--finetune\.format reward"):
        RewardModel(tmp_path)


def test_a_model_that_sees_images_cannot_become_one(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_vl"}')
    with pytest.raises(TrainError, match=r"is a qwen3_vl model, which transformers cannot give a reward head"):
        load_reward_model(tmp_path, "bfloat16")
