"""The same rows in the files of other trainers: LLaMA-Factory's ShareGPT and ms-swift's messages, one JSON object a line.

LLaMA-Factory learns every reply of a conversation or, with `mask_history: true`, the last one alone; its rows are made for the
latter, so a conversation becomes a row for each reply to learn:

    {"system": "You search ...",
     "conversations": [{"from": "human", "value": "Question: ..."}, {"from": "gpt", "value": "<search>rotor</search>"}]}

ms-swift reads of each reply whether it is learned:

    {"messages": [{"role": "user", "content": "Question: ..."},
                  {"role": "assistant", "content": "<search>rotor</search>", "loss": true}]}
"""

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from drag_ray.artifacts import whole_or_absent, write_json
from drag_ray.engine.generate import join_text
from drag_ray.format.config import ExportName, FormatName
from drag_ray.format.layout import Layout

Row = dict[str, Any]

_SHARE_GPT_ROLES = {"user": "human", "assistant": "gpt", "tool": "observation"}
_NOT_IN_LLAMA_FACTORY = ("reward", "rl_steps")  # it has no trainer that reads scores


def to_llama_factory(kind: str, row: Row) -> Iterator[Row]:
    """The rows of LLaMA-Factory for one row of a kind; none for a kind that it cannot read."""
    if kind in _NOT_IN_LLAMA_FACTORY:
        return
    for messages in _cut_after_learned(row):
        places = row.get("images") or []
        system = [join_text(message) for message in messages if message["role"] == "system"]
        turns = [_to_share_gpt(message) for message in messages if message["role"] != "system"]
        exported: Row = {"system": "\n\n".join(system), "conversations": turns}
        if kind == "dpo":
            exported |= {side: _to_share_gpt(row[side][0]) for side in ("chosen", "rejected")}
        if kind == "kto":
            exported["kto_tag"] = row["label"]
        if places:
            exported["images"] = places[: sum(_count_images(message) for message in messages)]
        yield exported | ({"tools": row["tools"]} if row.get("tools") else {})


def describe_llama_factory(kind: str, file_name: str, layout: Layout) -> Row:
    """The entry of `dataset_info.json` for a file of rows of one kind."""
    columns = {"messages": "conversations", "system": "system"}
    columns |= {"chosen": "chosen", "rejected": "rejected"} if kind == "dpo" else {}
    columns |= {"kto_tag": "kto_tag"} if kind == "kto" else {}
    columns |= {"images": "images"} if layout.has_images else {}
    columns |= {"tools": "tools"} if layout.has_tools else {}
    return {"file_name": file_name, "formatting": "sharegpt", **({"ranking": True} if kind == "dpo" else {}), "columns": columns}


def to_ms_swift(kind: str, row: Row) -> Iterator[Row]:
    """The row of ms-swift for one row of a kind."""
    if "messages" in row:
        learned = _list_learned(row)
        messages = [_to_plain(message, place in learned) for place, message in enumerate(row["messages"])]
    else:
        replies = row["chosen"] if kind == "dpo" else [] if kind == "rl_steps" else row["completion"]
        messages = [_to_plain(message, False) for message in row["prompt"]] + [_to_plain(message, True) for message in replies]
    exported: Row = {"messages": messages}
    if kind == "dpo":
        exported["rejected_response"] = join_text(row["rejected"][0])
    elif kind == "kto":
        exported["label"] = row["label"]
    elif kind == "reward":
        exported["label"] = row["score"]
    elif kind == "rl_steps":
        exported |= {"recorded_reply": join_text(row["completion"][0]), "reward": row["reward"]}
    if row.get("images"):
        exported["images"] = row["images"]
    yield exported | ({"tools": row["tools"]} if row.get("tools") else {})


_CONVERTERS: dict[ExportName, Callable[[str, Row], Iterator[Row]]] = {
    "llama_factory": to_llama_factory,
    "ms_swift": to_ms_swift,
}


class ExportFile:
    """`<trainer>/<kind>_<side>.jsonl`, written table by table. Use it as a context manager; it is there at its end or never."""

    def __init__(self, folder: Path, trainer: ExportName, kind: FormatName, side: str) -> None:
        self.key = (kind, side)
        self.path = folder / trainer / f"{kind}_{side}.jsonl"
        self.num_rows = 0
        self._convert = _CONVERTERS[trainer]
        self._scratch = whole_or_absent(self.path)

    def __enter__(self) -> Self:
        self._lines = self._scratch.__enter__().open("w", encoding="utf-8")
        return self

    def __exit__(self, *exception: Any) -> None:
        self._lines.close()
        self._scratch.__exit__(*exception)

    def write(self, table: pa.Table) -> None:
        """Append the rows of a table of the file's kind."""
        for row in table.to_pylist():
            for exported in self._convert(self.key[0], row):
                self._lines.write(json.dumps(exported, ensure_ascii=False) + "\n")
                self.num_rows += 1


def write_dataset_info(folder: Path, files: Iterable[ExportFile], layout: Layout) -> None:
    """Write LLaMA-Factory's `dataset_info.json` for those of its files that have rows."""
    theirs = [file for file in files if file.path.parent.name == "llama_factory" and file.num_rows]
    entries = {file.path.stem: describe_llama_factory(file.key[0], file.path.name, layout) for file in theirs}
    write_json(folder / "llama_factory" / "dataset_info.json", entries)


def _cut_after_learned(row: Row) -> list[list[Row]]:
    """The conversations that end with each reply to learn; a preference pair's ends before its replies."""
    if "messages" in row:
        return [row["messages"][: place + 1] for place in sorted(_list_learned(row))]
    return [[*row["prompt"], *row.get("completion", [])]]


def _list_learned(row: Row) -> set[int]:
    replies = [place for place, message in enumerate(row["messages"]) if message["role"] == "assistant"]
    replies = [place for place in replies if place >= row["num_prompt_messages"]]
    return {place for place, is_learned in zip(replies, row["train_turns"], strict=True) if is_learned}


def _to_share_gpt(message: Row) -> Row:
    return {"from": _SHARE_GPT_ROLES[message["role"]], "value": join_text(message)}


def _to_plain(message: Row, is_learned: bool) -> Row:
    plain = {"role": message["role"], "content": join_text(message)}
    return {**plain, "loss": is_learned} if message["role"] == "assistant" else plain


def _count_images(message: Row) -> int:
    return 0 if isinstance(message["content"], str) else sum(part["type"] == "image" for part in message["content"])
