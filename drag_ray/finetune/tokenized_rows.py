"""Training rows -> token ids and labels, with those of their page images; rows that are too long are set aside.

The tokens of a page image take the place of the one that marks it once the text is tokenized, so that they are never learned,
whatever the mask.
"""

import itertools
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from drag_ray.agent.protocols.function_calls import SEARCH_NAME
from drag_ray.engine.conversation import Conversation, read_conversation
from drag_ray.engine.masks import Mask
from drag_ray.engine.tokens import IGNORED_LABEL, tokenize_conversation, tokenize_step
from drag_ray.errors import DataError, TrainError
from drag_ray.finetune.images import TrainingImages

ROW_NUMBERS = ("weight", "advantage")
"""What a row may count in the loss: a supervised one its weight, a drawn one how much better than others it was."""
PAIR_SIDES = ("chosen", "rejected")
"""The two replies of a preference pair, in the order that TRL takes them in."""


@dataclass
class TokenizedRows:
    """Rows {name, input_ids, labels, image_keys, weight, advantage or is_wanted} or pairs {name, chosen, rejected, image_keys};
    how many are left out.

    `input_ids` and `labels`, which each side of a pair has, are of equal length; images stand in their order. `name` is what a
    row is called in messages: its line, and its trajectory where it has one.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    num_too_long: int = 0
    num_without_advantage: int = 0

    @property
    def num_trained_tokens(self) -> int:
        sequences = (sequence for row in self.rows for sequence in list_sequences(row))
        return sum(label != IGNORED_LABEL for sequence in sequences for label in sequence["labels"])


def tokenize_rows(
    rows: Iterable[dict[str, Any]],
    tokenizer: Any,
    max_length: int,
    mask: Mask = "assistant",
    images: TrainingImages | None = None,
) -> TokenizedRows:
    """Tokenize rows; one of more than `max_length` tokens, those of its images included, is set aside and counted, never cut.

    Args:
        images: what the model makes of page images; None if it takes none.

    Raises:
        DataError: a row is not a training row or shows a page image that is missing or damaged (says which), or none is short
            enough.
        TrainError: the chat template cannot be trained with, or the model takes no images.
    """

    def tokenize(row: dict[str, Any]) -> dict[str, Any]:
        conversation = read_conversation(row)
        tokenized = _tokenize_with_images(conversation, tokenizer, mask, images)
        return {**tokenized, "weight": conversation.weight, "image_keys": conversation.images}

    return _tokenize_all(rows, tokenize, max_length)


def tokenize_pairs(
    rows: Iterable[dict[str, Any]], tokenizer: Any, max_length: int, images: TrainingImages | None = None
) -> TokenizedRows:
    """Tokenize preference pairs {prompt, chosen, rejected}: each side is the prompt with one of the two replies.

    Args and errors are those of `tokenize_rows`. The whole of a reply is compared, up to its end-of-turn token.
    """

    def tokenize(row: dict[str, Any]) -> dict[str, Any]:
        _check_columns(row, {"prompt", "chosen", "rejected"}, "a preference pair")
        conversations = [read_conversation({**row, "completion": row[side]}) for side in PAIR_SIDES]
        sides = [_tokenize_with_images(conversation, tokenizer, "assistant", images) for conversation in conversations]
        return {**dict(zip(PAIR_SIDES, sides, strict=True)), "image_keys": conversations[0].images}

    return _tokenize_all(rows, tokenize, max_length)


def tokenize_labelled(
    rows: Iterable[dict[str, Any]], tokenizer: Any, max_length: int, images: TrainingImages | None = None
) -> TokenizedRows:
    """Tokenize replies {prompt, completion, label}, of which the label says whether they are wanted.

    Args and errors are those of `tokenize_rows`.
    """

    def tokenize(row: dict[str, Any]) -> dict[str, Any]:
        _check_columns(row, {"prompt", "label"}, "a labelled reply")
        conversation = read_conversation(row)
        tokenized = _tokenize_with_images(conversation, tokenizer, "assistant", images)
        return {**tokenized, "is_wanted": row["label"], "image_keys": conversation.images}

    return _tokenize_all(rows, tokenize, max_length)


def tokenize_scored(
    rows: Iterable[dict[str, Any]], tokenizer: Any, max_length: int, images: TrainingImages | None = None
) -> TokenizedRows:
    """Tokenize scored replies {prompt, completion, score}, and pair those to the same prompt: each with each that scored less.

    Replies to a prompt all of whose replies scored the same teach nothing; they are left out and counted.  Args and errors are
    those of `tokenize_rows`.
    """

    def tokenize(row: dict[str, Any]) -> dict[str, Any]:
        _check_columns(row, {"prompt", "score"}, "a scored reply")
        conversation = read_conversation(row)
        tokenized = _tokenize_with_images(conversation, tokenizer, "assistant", images)
        prompt = json.dumps([row["prompt"], conversation.images])
        return {**tokenized, "image_keys": conversation.images, "prompt": prompt, "score": row["score"]}

    scored = _tokenize_all(rows, tokenize, max_length)
    replies: dict[str, list[dict[str, Any]]] = {}
    for row in scored.rows:
        replies.setdefault(row["prompt"], []).append(row)
    pairs = TokenizedRows(num_too_long=scored.num_too_long)
    for group in replies.values():
        of_group = _pair_by_score(group)
        pairs.rows += of_group
        pairs.num_without_advantage += 0 if of_group else len(group)
    return pairs


def _pair_by_score(replies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    sides = [{name: reply[name] for name in ("input_ids", "labels")} for reply in replies]
    return [
        {
            "name": f"{replies[better]['name']} over {replies[worse]['name']}",
            "chosen": sides[better],
            "rejected": sides[worse],
            "image_keys": replies[better]["image_keys"],
        }
        for better, worse in itertools.permutations(range(len(replies)), 2)
        if replies[better]["score"] > replies[worse]["score"]
    ]


def tokenize_steps(
    rows: Iterable[dict[str, Any]], tokenizer: Any, max_length: int, images: TrainingImages | None = None
) -> TokenizedRows:
    """Tokenize steps {prompt, completion, completion_token_ids, advantage}: the prompt, and the tokens that the policy drew.

    Steps without advantage, which nothing is learned from, are left out and counted.  Args and errors are those of
    `tokenize_rows`, and a step without the tokens of its reply is refused too.
    """

    def tokenize(row: dict[str, Any]) -> dict[str, Any]:
        _check_columns(row, {"advantage", "completion_token_ids"}, "a step")
        conversation = read_conversation(row)
        tokenized = tokenize_step(conversation, row["completion_token_ids"], tokenizer)
        tokenized = _add_images(tokenized, conversation, images)
        return {**tokenized, "advantage": row["advantage"], "image_keys": conversation.images}

    return _tokenize_all(rows, tokenize, max_length)


def _check_columns(row: dict[str, Any], columns: set[str], kind: str) -> None:
    if missing := columns - row.keys():
        raise DataError(f"{kind} lacks {', '.join(sorted(missing))}. Run: python jobs/format.py")


def _tokenize_with_images(
    conversation: Conversation, tokenizer: Any, mask: Mask, images: TrainingImages | None
) -> dict[str, list[int]]:
    return _add_images(tokenize_conversation(conversation, tokenizer, mask, SEARCH_NAME), conversation, images)


def _add_images(
    tokenized: dict[str, list[int]], conversation: Conversation, images: TrainingImages | None
) -> dict[str, list[int]]:
    """The tokens of the page images in place of their marks."""
    if images:
        return expand_images(tokenized, images.mark_id, [images.find_tokens(key) for key in conversation.images])
    if conversation.images:
        raise TrainError(
            "the training rows show page images, and engine.model takes none. Set engine.model to a vision-language "
            "model, or collect with agent.page_view text."
        )
    return tokenized


def _tokenize_all(
    rows: Iterable[dict[str, Any]], tokenize: Callable[[dict[str, Any]], dict[str, Any]], max_length: int
) -> TokenizedRows:
    """What `tokenize` makes of each row, without those that hold a sequence of more than `max_length` tokens."""
    kept = TokenizedRows()
    for number, row in enumerate(rows, start=1):
        if row.get("advantage") == 0:
            kept.num_without_advantage += 1
            continue
        try:
            tokenized = tokenize(row)
        except DataError as error:
            raise DataError(f"row {number}: {error}") from None
        if max(len(sequence["input_ids"]) for sequence in list_sequences(tokenized)) > max_length:
            kept.num_too_long += 1
        else:
            kept.rows.append({"name": _name_row(row, number), **tokenized})
    if kept.num_too_long and not kept.rows:
        raise DataError(
            f"all {kept.num_too_long} rows have more than finetune.max_length = {max_length} tokens. "
            "Raise it, or collect with a smaller agent.top_k, fewer agent.page_chars or a low agent.image_searches."
        )
    return kept


def _name_row(row: dict[str, Any], number: int) -> str:
    return f"{number} ({row['trajectory_id']})" if "trajectory_id" in row else str(number)


def list_sequences(tokenized: dict[str, Any]) -> list[dict[str, list[int]]]:
    """Both sides of a pair, or the row itself."""
    return [tokenized[side] for side in PAIR_SIDES if side in tokenized] or [tokenized]


def expand_images(tokenized: dict[str, list[int]], mark_id: int, images: Sequence[list[int]]) -> dict[str, list[int]]:
    """Put the tokens of each image in place of its mark. They are not learned.

    Raises:
        DataError: there are not as many marks as images.
    """
    num_marks = tokenized["input_ids"].count(mark_id)
    if num_marks != len(images):
        raise DataError(
            f"a training row shows {len(images)} images, and the chat template marks {num_marks}. If one of its texts spells "
            "out the model's image token, leave the row out; otherwise this family of models is not supported."
        )
    waiting = iter(images)
    expanded: dict[str, list[int]] = {"input_ids": [], "labels": []}
    for token, label in zip(tokenized["input_ids"], tokenized["labels"], strict=True):
        tokens = next(waiting) if token == mark_id else [token]
        expanded["input_ids"] += tokens
        expanded["labels"] += [IGNORED_LABEL] * len(tokens) if token == mark_id else [label]
    return expanded
