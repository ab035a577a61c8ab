"""Scoring by a trained reward model: a number for each of several replies to a prompt."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from drag_ray.engine.conversation import Conversation
from drag_ray.engine.generate import Message
from drag_ray.engine.models.dtype import choose_dtype
from drag_ray.engine.models.pretrained import holds_reward_model, load_reward_model, load_tokenizer
from drag_ray.engine.models.tokens import tokenize_conversation
from drag_ray.errors import TrainError


class RewardModel:
    """A model that finetune has trained with the method `reward`, on a GPU if this process sees one. Raises TrainError where the
    folder holds a model of another kind. `folder`: of the whole model, `finetune/merged`."""

    def __init__(self, folder: Path) -> None:
        if not holds_reward_model(folder):
            raise TrainError(f"{folder}: no reward model. Run: python jobs/finetune.py --finetune.method reward")
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._tokenizer = load_tokenizer(folder)
        dtype = choose_dtype("auto", "reward model", on_gpu=self._device == "cuda")
        self._model = load_reward_model(folder, dtype).to(self._device).eval()

    def score(self, messages: Sequence[Message], replies: Sequence[str], tools: Sequence[dict[str, Any]] = ()) -> list[float]:
        """The reward of each reply: only their differences mean something, and only among replies to one prompt.

        The prompt is read once for all of them.
        """
        conversations = (
            Conversation([*messages, {"role": "assistant", "content": reply}], (len(messages),), list(tools) or None)
            for reply in replies
        )
        sequences = [tokenize_conversation(conversation, self._tokenizer)["input_ids"] for conversation in conversations]
        num_shared = _count_shared(sequences)
        with torch.inference_mode():
            shared = torch.tensor([sequences[0][:num_shared]], device=self._device)
            cache = self._model.base_model(shared, use_cache=True).past_key_values
            cache.batch_repeat_interleave(len(sequences))
            own = [torch.tensor(sequence[num_shared:]) for sequence in sequences]
            padded = pad_sequence(own, batch_first=True, padding_value=self._tokenizer.pad_token_id).to(self._device)
            mask = pad_sequence([torch.ones(len(sequence)) for sequence in sequences], batch_first=True).to(self._device)
            rewards = self._model(padded, attention_mask=mask, past_key_values=cache).logits
        return rewards.squeeze(-1).float().tolist()


def _count_shared(sequences: Sequence[Sequence[int]]) -> int:
    """Tokens with which all begin alike; each keeps one of its own at least."""
    alike = itertools.takewhile(lambda column: len(set(column)) == 1, zip(*sequences, strict=False))
    return min(sum(1 for _ in alike), min(map(len, sequences)) - 1)
