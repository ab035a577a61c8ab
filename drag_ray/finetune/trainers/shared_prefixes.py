"""Batches in which tokens that several rows begin with are computed once.

The samples of a question have its prompt in common, and a later reply of a rollout has all that came before it: most of what a
step of reinforcement learning reads is read again and again (https://arxiv.org/abs/2506.05433). Here all rows of a batch lie one
after the other in a single sequence, in which each row is left with what it does not share with the one before it. A token is at
its place in its own row and sees the tokens of that row alone, so its hidden state is what it would be in a row by itself.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from drag_ray.engine.models.tokens import IGNORED_LABEL

_FULL_ATTENTION = "full_attention"
_MOST_TOKENS = 8_192
"""of a pack or a pair: its mask is their square, and attention computes what that hides too"""


def can_share_prefixes(model: Any) -> bool:
    """True if the model sees a token by its mask and position alone, and takes a mask of (tokens, tokens)."""
    return model.config._attn_implementation == "sdpa" and sees_whole_context(model)


def sees_whole_context(model: Any) -> bool:
    """True if each layer of the model attends to the whole context, none of them carries a state from a token to the next, and
    nothing else reads a mask of (rows, tokens)."""
    config = model.config.get_text_config()
    layers = getattr(config, "layer_types", None) or [_FULL_ATTENTION]
    has_window = bool(getattr(config, "sliding_window", None)) and not hasattr(config, "layer_types")
    attends = set(layers) == {_FULL_ATTENTION} and not has_window
    reads_mask = getattr(config, "output_router_logits", False) or getattr(config, "alibi", False)
    return attends and not reads_mask and not getattr(model, "_is_stateful", False)


def cut_packs(rows: Sequence[dict[str, Any]], max_tokens: int, num_workers: int = 1) -> Iterator[list[dict[str, Any]]]:
    """Rows in packs of at most so many tokens, those shared with the row before counted once, and of one row at least.

    Rows with a prefix in common come after each other, so that no earlier row shares more with one than that before it.

    Args:
        rows: of a step, or of one of its updates.
        max_tokens: of a pack, unless that is more than a mask bears.
        num_workers: processes that the packs are for, of which each is to have some.
    """
    ordered = sorted(rows, key=lambda row: row["input_ids"])
    shared = [0, *itertools.starmap(count_shared, itertools.pairwise(ordered))]
    lengths = [len(row["input_ids"]) for row in ordered]
    limit = min(max_tokens, _MOST_TOKENS, math.ceil((sum(lengths) - sum(shared)) / num_workers))
    pack: list[dict[str, Any]] = []
    num_tokens = 0
    for row, length, num_shared in zip(ordered, lengths, shared, strict=True):
        if pack and num_tokens + length - num_shared > limit:
            yield pack
            pack, num_tokens = [], 0
        num_tokens += length - (num_shared if pack else 0)
        pack.append(row)
    if pack:
        yield pack


def count_shared(before: dict[str, Any], row: dict[str, Any]) -> int:
    """The tokens at the beginning of a row that it shares with another one.

    What is learned is never among them, nor the token before it: that tells what comes next, which is another token in each row.
    """
    first_learned = next(place for place, label in enumerate(row["labels"]) if label != IGNORED_LABEL)
    limit = max(0, min(first_learned - 1, len(before["input_ids"])))
    one, other = (torch.tensor(of["input_ids"][:limit]) for of in (before, row))
    differing = (one != other).nonzero()
    return int(differing[0]) if len(differing) else limit


def collate_pack(rows: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """A batch of one sequence, for a model of `can_share_prefixes`.

    Args:
        rows: of `cut_packs`, with {input_ids, labels, advantage, engine_log_probabilities}.

    Returns:
        The columns of `StepCollator`, with `input_ids`, `labels`, `rows` and `engine_log_probabilities` of shape (1, tokens);
        `position_ids` of that shape, and `attention_mask` of shape (1, 1, tokens, tokens), true where a token sees another.
    """
    shared = [0, *itertools.starmap(count_shared, itertools.pairwise(rows))]
    num_tokens = sum(len(row["input_ids"]) for row in rows) - sum(shared)
    sees = torch.zeros(num_tokens, num_tokens, dtype=torch.bool)
    start, path = 0, torch.arange(0)
    for row, num_shared in zip(rows, shared, strict=True):
        own = torch.arange(start, start + len(row["input_ids"]) - num_shared)
        path, start = torch.cat([path[:num_shared], own]), start + len(own)
        sees[own[0] : start, path[:num_shared]] = True
        sees[own[0] : start, own[0] : start] = torch.ones(len(own), len(own), dtype=torch.bool).tril()
    parts = [_cut_row(row, number, num_shared) for number, (row, num_shared) in enumerate(zip(rows, shared, strict=True))]
    joined = {name: torch.cat([part[name] for part in parts])[None] for name in parts[0]}
    advantage = torch.tensor([row["advantage"] for row in rows], dtype=torch.float32)
    return {**joined, "attention_mask": sees[None, None], "advantage": advantage}


def _cut_row(row: dict[str, Any], number: int, num_shared: int) -> dict[str, torch.Tensor]:
    """The columns of a row's own tokens, of shape (tokens,)."""
    tokens, labels = torch.tensor(row["input_ids"]), torch.tensor(row["labels"])
    known = torch.full(labels.shape, math.nan)
    if row["engine_log_probabilities"]:
        known[labels != IGNORED_LABEL] = torch.tensor(row["engine_log_probabilities"])
    columns = {
        "input_ids": tokens,
        "labels": labels,
        "position_ids": torch.arange(len(tokens)),
        "rows": torch.full(labels.shape, number),
        "engine_log_probabilities": known,
    }
    return {name: values[num_shared:] for name, values in columns.items()}


_MOST_LEFT = 0.9
"""Share of the tokens of padded pairs that those with a shared prompt may have, for attention computes what their mask hides."""


def share_prompts(pairs: Sequence[dict[str, Any]], pad_token_id: int) -> dict[str, torch.Tensor] | None:
    """A batch with a sequence for each pair, for a model of `can_share_prefixes`; None where that saves little, or
    one would be too long.

    A sequence is the chosen row, and of the rejected one what it does not begin with too.

    Args:
        pairs: {chosen, rejected}, each with {input_ids, labels}.
        pad_token_id: fills short sequences.

    Returns:
        `input_ids`, `labels`, `position_ids`, `rows` and `attention_mask` of shape (pairs, tokens). Rows are numbered as if all
        chosen ones came first, and then all rejected ones; padding is of row -1. The mask says in how many rows a token is, so
        that its sum is the number of tokens of all rows. `unfold_mask` makes one of it that a model takes.
    """
    names = ("input_ids", "labels", "position_ids", "attention_mask", "rows")
    columns: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    longest = 0
    for number, pair in enumerate(pairs):
        chosen, rejected = pair["chosen"], pair["rejected"]
        num_shared = count_shared(chosen, rejected)
        lengths = len(chosen["input_ids"]), len(rejected["input_ids"])
        longest = max(longest, *lengths)
        own = torch.tensor([lengths[0], lengths[1] - num_shared])
        for name in ("input_ids", "labels"):
            columns[name].append(torch.tensor(chosen[name] + rejected[name][num_shared:]))
        columns["position_ids"].append(torch.cat([torch.arange(lengths[0]), torch.arange(num_shared, lengths[1])]))
        columns["attention_mask"].append(1 + (torch.arange(int(own.sum())) < num_shared).long())
        columns["rows"].append(torch.tensor([number, number + len(pairs)]).repeat_interleave(own))
    if max(map(len, columns["rows"])) > min(_MOST_LEFT * 2 * longest, _MOST_TOKENS):
        return None
    fill = {"input_ids": pad_token_id, "labels": IGNORED_LABEL, "rows": -1}
    return {name: pad_sequence(parts, batch_first=True, padding_value=fill.get(name, 0)) for name, parts in columns.items()}


def unfold_mask(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """The mask of a batch of `share_prompts`, of shape (pairs, 1, tokens, tokens), true where a token sees another."""
    rows, is_shared = batch["rows"], batch["attention_mask"] > 1
    return ((rows[:, :, None] == rows[:, None]) | is_shared[:, None]).tril()[:, None]
