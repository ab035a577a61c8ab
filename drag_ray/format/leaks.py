"""The last look at training rows: a model must not be shown what serving would not show it.

Three checks: what a model is given is word for word what the policy was given when it searched; nothing in it
tells the rank of the evidence; and the opening of a conversation, which is written before any search, does not name
an evidence file or an answer of its question.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import polars as pl

from drag_ray.errors import DataError

_TOLD_RANK = re.compile(r"\b(?:found|evidence|ground truth|gold|relevant)\b[\w ]{0,30}\bat rank [1-9]", re.IGNORECASE)
# Shorter answers ("5", "no") are in any instruction by chance.
_MIN_TELLING_CHARS = 4


def screen_rows(rows: list[dict[str, Any]], trajectories: pl.DataFrame) -> tuple[list[dict[str, Any]], int]:
    """The rows without those that tell the model something about the evidence, and the number of those.

    Args:
        rows: training rows with `trajectory_id` and either `prompt` or `messages`.
        trajectories: as of the process stage, with those of the rows among them.

    Raises:
        DataError: a row shows the model what is not in the recorded conversation.
    """
    used = trajectories.filter(pl.col("trajectory_id").is_in({row["trajectory_id"] for row in rows}))
    recorded = {name: json.loads(messages) for name, messages in used.select("trajectory_id", "messages").iter_rows()}
    for number, row in enumerate(rows, start=1):
        require_prefix(_get_input(row), recorded[row["trajectory_id"]], f"row {number}, trajectory {row['trajectory_id']!r}")
    telling = find_telling_openings(used.iter_rows(named=True))
    clean = [row for row in rows if row["trajectory_id"] not in telling and not tells_rank(_get_input(row))]
    return clean, len(rows) - len(clean)


def require_prefix(shown: list[dict[str, str]], recorded: list[dict[str, str]], place: str) -> None:
    """Check that a model input is an exact prefix of the recorded conversation.

    Raises:
        DataError: names `place` and the first message that differs.
    """
    for position, message in enumerate(shown):
        original = recorded[position] if position < len(recorded) else {}
        if any(message[key] != original.get(key) for key in ("role", "content")):
            raise DataError(
                f"{place}: message {position} of the training row is not message {position} of the recorded conversation "
                f"(got {message['content'][:80]!r}). The model would train on what it is never shown; "
                "run the process stage again, and report this if it happens again."
            )


def tells_rank(messages: Iterable[dict[str, str]]) -> bool:
    """True if a message to the model says at which rank the evidence was. What the model itself wrote does not count."""
    return any(message["role"] != "assistant" and _TOLD_RANK.search(message["content"]) for message in messages)


def find_telling_openings(trajectories: Iterable[dict[str, Any]]) -> set[str]:
    """Ids of the trajectories whose opening names an evidence file or an answer of their own question.

    The question's own words may do so, and so may words that another question has in its opening as well: those are
    instructions, not hints.
    """
    questions_of = defaultdict(set)
    suspects = []
    for trajectory in trajectories:
        opening = json.loads(trajectory["messages"])[: trajectory["num_opening_messages"]]
        text = "\n".join(message["content"] for message in opening).replace(trajectory["question"], "").casefold()
        questions_of[text].add(trajectory["question_id"])
        gold = [*(page["file"] for page in trajectory["evidence"]), *trajectory["answers"]]
        if any(len(item) >= _MIN_TELLING_CHARS and item.casefold() in text for item in gold):
            suspects.append((trajectory["trajectory_id"], text))
    return {trajectory_id for trajectory_id, text in suspects if len(questions_of[text]) == 1}


def _get_input(row: dict[str, Any]) -> list[dict[str, str]]:
    return row["prompt"] if "prompt" in row else row["messages"]
