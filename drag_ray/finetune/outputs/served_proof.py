"""Proof that an endpoint, or a merged model, writes as an adapter does: its probabilities of fixed texts, beside those of
transformers and PEFT.

An engine that leaves an adapter away, or a part of it, answers as fluently as before. Its probabilities are then those of the
base model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import PeftModel

from drag_ray.engine.models.adapter import check_adapter_writes
from drag_ray.engine.models.dtype import choose_dtype
from drag_ray.engine.models.pretrained import load_model, load_tokenizer
from drag_ray.errors import ServeError

TEXTS = (
    ("How fast may the rotor turn?", "<search>rotor maximum speed limit rpm</search>"),
    ("Which form changes the name of an account?", "<think>The form is asked for.</think>\n<search>account name</search>"),
    ("What are the symptoms of dehydration?", "<answer>thirst, tiredness and dark urine <cite>guide.pdf#12</cite></answer>"),
)
"""Questions and replies that the probabilities are those of."""
_LEAST_GAP = 0.02
"""What two kernels in bfloat16 may differ in, in nats a token: an adapter that changes less cannot be told from none."""
_MOST_ERROR = 0.25
"""Share of the adapter's own effect by which what is served may differ from what was trained."""


@dataclass(frozen=True)
class Reference:
    """The tokens of each text, and the log-probability of each but the first by the base model and by the adapter on it."""

    token_ids: list[list[int]]
    base: list[np.ndarray]
    adapted: list[np.ndarray]


@dataclass(frozen=True)
class Proof:
    """Mean differences of log-probabilities, in nats a token.

    Attributes:
        effect: between the adapter and the base model, by transformers and PEFT.
        error: between what is looked at and the adapter.
    """

    effect: float
    error: float


def compute_reference(base: str, adapter_dir: Path) -> Reference:
    """The reference of transformers and PEFT, in the type that engines take. Raises TrainError where the folder holds no adapter
    of a model that writes, or one that no engine writes with."""
    check_adapter_writes(adapter_dir)
    tokenizer = load_tokenizer(base)
    token_ids = [_tokenize(question, reply, tokenizer) for question, reply in TEXTS]
    model: Any = PeftModel.from_pretrained(_load(base), str(adapter_dir)).eval()
    adapted = [_compute_log_probabilities(model, ids) for ids in token_ids]
    with model.disable_adapter():
        alone = [_compute_log_probabilities(model, ids) for ids in token_ids]
    return Reference(token_ids, alone, adapted)


def ask_folder(model_dir: Path) -> Callable[[Sequence[int]], Sequence[float]]:
    """The answer of a whole model to token ids: the log-probability of each but the first. It may be one that was merged."""
    model: Any = _load(model_dir).eval()
    return lambda token_ids: _compute_log_probabilities(model, token_ids).tolist()


def prove(reference: Reference, ask: Callable[[Sequence[int]], Sequence[float]], name: str, remedy: str) -> Proof:
    """Compare what is served, or was merged. Raises ServeError where it is not the adapter, or the adapter does too little to be
    told from the base model.

    Args:
        reference: what it ought to be.
        ask: the log-probability of each token but the first, by the model that is looked at.
        name: what that is called.
        remedy: what to do where it is another one.
    """
    served = np.concatenate([np.asarray(ask(ids)) for ids in reference.token_ids])
    base, adapted = np.concatenate(reference.base), np.concatenate(reference.adapted)
    effect, error = float(np.abs(adapted - base).mean()), float(np.abs(served - adapted).mean())
    if effect < _LEAST_GAP:
        raise ServeError(
            f"the adapter changes log-probabilities by {effect:.4f} a token, less than engines differ in ({_LEAST_GAP}): whether "
            f"it is {name} cannot be told. Train longer, or compare replies by hand."
        )
    if error > _MOST_ERROR * effect:
        from_base = float(np.abs(served - base).mean())
        raise ServeError(
            f"{name} is not this adapter: its log-probabilities differ by {error:.4f} a token from those of "
            f"transformers and PEFT, and by {from_base:.4f} from the base model's; the adapter itself changes {effect:.4f}. "
            f"{remedy}"
        )
    return Proof(effect, error)


def _load(model: str | Path) -> Any:
    """On this machine's CPUs, which are enough for a few short texts."""
    return load_model(model, choose_dtype("auto", "reference"))


def _tokenize(question: str, reply: str, tokenizer: Any) -> list[int]:
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": reply}]
    return tokenizer(tokenizer.apply_chat_template(messages, tokenize=False), add_special_tokens=False)["input_ids"]


def _compute_log_probabilities(model: Any, token_ids: Sequence[int]) -> np.ndarray:
    ids = torch.tensor([token_ids])
    with torch.inference_mode():
        logits = model(input_ids=ids).logits[0, :-1].float()
    return torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])[:, 0].numpy()
