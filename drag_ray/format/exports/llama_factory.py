"""LLaMA-Factory's ShareGPT.

It learns every reply of a conversation or, with `mask_history: true`, the last one alone; its rows are made for the latter, so a
conversation becomes a row for each reply to learn:

    {"system": "You search ...",
     "conversations": [{"from": "human", "value": "Question: ..."}, {"from": "gpt", "value": "<search>rotor</search>"}]}

It has no trainer that reads scores.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Required, TypedDict

from drag_ray.engine.generate import Message, join_text
from drag_ray.format.columns import Example, PreferenceExample, Row, SupervisedExample
from drag_ray.format.exporter import Exporter
from drag_ray.storage.artifacts import write_json

_ROLES = {"user": "human", "assistant": "gpt", "tool": "observation"}

ShareGptTurn = TypedDict("ShareGptTurn", {"from": str, "value": str})


class ShareGptRow(TypedDict, total=False):
    """A row; the columns after the first two are there where a row has something to say in them."""

    system: Required[str]
    conversations: Required[list[ShareGptTurn]]
    chosen: ShareGptTurn
    rejected: ShareGptTurn
    images: list[str]
    tools: str


def convert(example: Example, row: Row) -> Iterator[ShareGptRow]:
    """The rows of an example."""
    match example:
        case SupervisedExample(messages, learned):
            for place in learned:
                yield _add_shown(_to_share_gpt(messages[: place + 1]), messages[: place + 1], row)
        case PreferenceExample(prompt, chosen, rejected):
            yield _add_shown({**_to_share_gpt(prompt), "chosen": _to_turn(chosen), "rejected": _to_turn(rejected)}, prompt, row)
        case _:
            return


def write_dataset_info(folder: Path, columns: Mapping[str, Collection[str]]) -> None:
    """Write `dataset_info.json`, in which it looks a file up: an entry for each file, with what its columns are for.

    A column that no row of the file has is not named: it would be asked of every row.
    """
    entries = {Path(name).stem: _describe(name, written) for name, written in columns.items()}
    write_json(folder / "dataset_info.json", entries)


def _describe(file_name: str, written: Collection[str]) -> dict[str, Any]:
    optional = {name: name for name in ShareGptRow.__annotations__ if name in ShareGptRow.__optional_keys__ and name in written}
    ranking = {"ranking": True} if "chosen" in written else {}
    columns = {"messages": "conversations", "system": "system", **optional}
    return {"file_name": file_name, "formatting": "sharegpt", **ranking, "columns": columns}


def _to_share_gpt(messages: list[Message]) -> ShareGptRow:
    system = [join_text(message) for message in messages if message["role"] == "system"]
    turns = [_to_turn(message) for message in messages if message["role"] != "system"]
    return {"system": "\n\n".join(system), "conversations": turns}


def _to_turn(message: Message) -> ShareGptTurn:
    return {"from": _ROLES[message["role"]], "value": join_text(message)}


def _add_shown(exported: ShareGptRow, messages: list[Message], row: Row) -> ShareGptRow:
    """The row with the tools and those images that `messages`, the first ones of the conversation, show."""
    if images := row.get("images"):
        exported["images"] = images[: sum(_count_images(message) for message in messages)]
    if tools := row.get("tools"):
        exported["tools"] = tools
    return exported


def _count_images(message: Message) -> int:
    return 0 if isinstance(message["content"], str) else sum(part["type"] == "image" for part in message["content"])


EXPORTER = Exporter(convert, write_dataset_info)
