"""A reward model at work, with random weights: its numbers are those of reading each conversation by itself."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from embedded_tokenizer import VOCABULARY, load_shared_tokenizer, write_tokenizer
from qwen3_vl_shapes import SHAPES_TINY, write_model, write_random_weights
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, LlamaForSequenceClassification

from drag_ray.engine.encoders.reward_model import RewardModel
from drag_ray.engine.models.dtype import choose_dtype
from drag_ray.engine.models.pretrained import load_reward_model
from drag_ray.errors import TrainError

pytestmark = pytest.mark.seconds

PROMPT = [{"role": "system", "content": "Search."}, {"role": "user", "content": "Where is the pump?"}]
REPLIES = ["<search>pump</search>", "<search>fuel pump location</search>", "<search>where</search>"]
SHAPES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "initializer_range": 0.3,
}


def write_text_model(folder: Path) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(**SHAPES, pad_token_id=load_shared_tokenizer().pad_token_id)
    config.num_labels = 1
    model = LlamaForSequenceClassification(config)
    model.score.weight.data *= 10
    model.bfloat16().save_pretrained(folder)
    write_tokenizer(folder)


def write_vision_model(folder: Path) -> None:
    """A reward model of a family for which transformers has none."""
    write_model(folder, write_tokenizer(folder), SHAPES_TINY)
    write_random_weights(folder)
    model = load_reward_model(folder, "bfloat16")
    model.score.weight.data *= 100
    model.save_pretrained(folder)


@pytest.fixture(scope="module", params=[write_text_model, write_vision_model])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reward")
    request.param(folder)
    return folder


def test_replies_to_one_prompt_have_the_rewards_of_their_conversations(folder: Path) -> None:
    dtype = choose_dtype("auto", "reference")
    tokenizer, model, scorer = AutoTokenizer.from_pretrained(folder), load_reward_model(folder, dtype).eval(), RewardModel(folder)
    rewards = scorer.score(PROMPT, REPLIES)
    for reply, reward in zip(REPLIES, rewards, strict=True):
        conversation = [*PROMPT, {"role": "assistant", "content": reply}]
        ids = tokenizer.apply_chat_template(conversation, return_tensors="pt", return_dict=True)["input_ids"]
        with torch.no_grad():
            assert reward == pytest.approx(model(ids).logits.item(), rel=0.01)  # in another order
    assert max(rewards) - min(rewards) > 1
    assert scorer.score(PROMPT, REPLIES[::-1]) == pytest.approx(rewards[::-1], rel=0.01)


def test_a_model_that_writes_or_cannot_have_a_head_is_refused(tmp_path: Path) -> None:
    LlamaForCausalLM(LlamaConfig(**SHAPES)).save_pretrained(tmp_path)
    with pytest.raises(TrainError, match=r"no reward model.*--finetune\.method reward"):
        RewardModel(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "pix2struct"}')
    with pytest.raises(TrainError, match=r"is a pix2struct model, which transformers cannot give a reward head"):
        load_reward_model(tmp_path, "bfloat16")


def test_a_body_without_its_weights_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file({f"other.{name}": tensor for name, tensor in weights.items()}, tmp_path / "model" / "model.safetensors")
    with pytest.raises(TrainError, match="cannot give a reward head"):
        load_reward_model(tmp_path / "model", "bfloat16")
