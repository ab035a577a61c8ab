"""Training rows -> token ids and labels: the loss falls on what the assistant wrote, and on nothing else.

A prompt and the reply to it are tokenized apart, as they are when the model serves: it is given the
tokens of the prompt and adds its own.  So what is learned is a sequence that it can be asked to write.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from drag_ray.errors import DataError, TrainError

IGNORED_LABEL = -100
"""The label that PyTorch's cross-entropy leaves out."""


@dataclass(frozen=True)
class Conversation:
    """One training row: messages, and the assistant messages among them that are learned.

    `trained` holds their positions in `messages`, in rising order.
    """

    messages: list[dict[str, Any]]
    trained: tuple[int, ...]
    tools: list[dict[str, Any]] | None = None


@dataclass
class TokenizedRows:
    """Rows {input_ids, labels}, lists of equal length, and how many rows were too long to be among them."""

    rows: list[dict[str, list[int]]] = field(default_factory=list)
    num_too_long: int = 0

    @property
    def num_trained_tokens(self) -> int:
        return sum(label != IGNORED_LABEL for row in self.rows for label in row["labels"])


def read_conversation(row: dict[str, Any]) -> Conversation:
    """The conversation of a row `{prompt, completion}` or `{messages, num_prompt_messages, train_turns}`.

    Raises:
        DataError: the row is neither, or no message of it is to be learned.
    """
    if "prompt" in row and "completion" in row:
        messages, start, wanted = [*row["prompt"], *row["completion"]], len(row["prompt"]), None
    elif {"messages", "num_prompt_messages", "train_turns"} <= row.keys():
        messages, start, wanted = row["messages"], row["num_prompt_messages"], row["train_turns"]
    else:
        raise DataError(
            f"a training row has the columns {sorted(row)}; expected prompt and completion, "
            "or messages, num_prompt_messages and train_turns. Run: python jobs/format.py"
        )
    replies = [place for place in range(start, len(messages)) if messages[place]["role"] == "assistant"]
    wanted = [True] * len(replies) if wanted is None else wanted
    if len(wanted) != len(replies):
        raise DataError(f"train_turns has {len(wanted)} values for {len(replies)} assistant messages. Run: python jobs/format.py")
    trained = tuple(place for place, is_wanted in zip(replies, wanted, strict=True) if is_wanted)
    if not trained:
        raise DataError("a training row has no assistant message to learn. Run: python jobs/format.py")
    return Conversation(messages, trained, row.get("tools"))


def tokenize_conversation(conversation: Conversation, tokenizer: Any) -> dict[str, list[int]]:
    """Token ids up to the last learned reply, and labels that are -100 outside the learned replies.

    The labels of a reply run from the token after the generation prompt to the end-of-turn token, which
    the model has to write as well.

    Raises:
        TrainError: the chat template does not extend a conversation by appending to it, or ends no turn.
    """
    input_ids: list[int] = []
    labels: list[int] = []
    rendered = ""
    for place in conversation.trained:
        prompt = _render(conversation, place, tokenizer, with_generation_prompt=True)
        reply = _render(conversation, place + 1, tokenizer, with_generation_prompt=False)
        prompt_ids = _tokenize(_extension(rendered, prompt, place), tokenizer)
        reply_ids = _tokenize(_extension(prompt, reply, place), tokenizer)
        num_learned = _count_to_end_of_turn(reply_ids, tokenizer)
        input_ids += prompt_ids + reply_ids
        labels += [IGNORED_LABEL] * len(prompt_ids) + reply_ids[:num_learned]
        labels += [IGNORED_LABEL] * (len(reply_ids) - num_learned)
        rendered = reply
    return {"input_ids": input_ids, "labels": labels}


def tokenize_rows(rows: Iterable[dict[str, Any]], tokenizer: Any, max_length: int) -> TokenizedRows:
    """Tokenize rows; one of more than `max_length` tokens is set aside and counted, never cut.

    Raises:
        DataError: a row is not a training row (says which), or none is short enough.
        TrainError: the chat template cannot be trained with.
    """
    kept = TokenizedRows()
    for number, row in enumerate(rows, start=1):
        try:
            tokenized = tokenize_conversation(read_conversation(row), tokenizer)
        except DataError as error:
            raise DataError(f"row {number}: {error}") from None
        if len(tokenized["input_ids"]) > max_length:
            kept.num_too_long += 1
        else:
            kept.rows.append(tokenized)
    if kept.num_too_long and not kept.rows:
        raise DataError(
            f"all {kept.num_too_long} rows have more than finetune.max_length = {max_length} tokens. "
            "Raise it, or collect with a smaller search.top_k or shorter snippets."
        )
    return kept


def _render(conversation: Conversation, stop: int, tokenizer: Any, with_generation_prompt: bool) -> str:
    return tokenizer.apply_chat_template(
        conversation.messages[:stop],
        tools=conversation.tools,
        tokenize=False,
        add_generation_prompt=with_generation_prompt,
    )


def _extension(before: str, after: str, place: int) -> str:
    if not after.startswith(before):
        raise TrainError(
            f"the chat template renders the conversation differently once message {place} is added, so what the model "
            f"was given then cannot be told from what it wrote: {before[-80:]!r} is no longer there. "
            "Use finetune.format sft_query, which has one reply a row, or a model whose template only appends."
        )
    return after[len(before) :]


def _tokenize(text: str, tokenizer: Any) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _count_to_end_of_turn(reply_ids: list[int], tokenizer: Any) -> int:
    """Tokens of a rendered reply up to and including its end-of-turn token, its last special token."""
    special_ids = set(tokenizer.all_special_ids)
    for place in range(len(reply_ids) - 1, -1, -1):
        if reply_ids[place] in special_ids:
            return place + 1
    raise TrainError(
        "the chat template ends a reply without a special token, so the model would not learn to stop. "
        "Use a model with an end-of-turn token in its chat template."
    )
