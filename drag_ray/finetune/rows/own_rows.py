"""Conversations of the user's own, in the formats of other trainers, as rows that the methods sft and dpo learn from.

They are `messages` as OpenAI has them, ShareGPT, what LLaMA-Factory's `dataset_info.json` describes, and Hugging Face data sets
with such columns. All are read before training begins, and the first row that cannot be learned from ends it, with its place.
"""

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import pyarrow.parquet as pq
from pydantic import Field, ValidationError

from drag_ray.agent.protocols.written_call import render_call
from drag_ray.config import BaseConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.problems import Problem, read_one
from drag_ray.corpus.question_images import QuestionImages
from drag_ray.corpus.records import SUFFIXES, Record, read_records
from drag_ray.corpus.text import to_printable
from drag_ray.engine.conversation import Row
from drag_ray.engine.generate import Message
from drag_ray.errors import DataError
from drag_ray.rollout.folder import IMAGES_DIR_NAME
from drag_ray.storage.artifacts import whole_or_absent
from drag_ray.storage.json_text import parse_json

_logger = logging.getLogger(__name__)

DESCRIPTION_NAME = "dataset_info.json"
_REMEDY = f"Rename them, or describe them in a {DESCRIPTION_NAME} beside the file (docs/train.md)."
_SAVED_NAMES = ("state.json", "dataset_dict.json")
"""Files that `save_to_disk` of Hugging Face's datasets leaves, with a `dataset_info.json` of its own."""
_SPLIT_NAME = re.compile(r"(.+?)(?:-\d{5}-of-\d{5}.*)?(?:\.jsonl|\.jsonl\.gz|\.parquet)")
_IMAGE = "<image>"
_SIDES = ("chosen", "rejected")
_MAX_PIXELS = 2_000_000
"""of an image; those of pages have as many by default"""

Column = Literal["messages", "system", "tools", "images", "chosen", "rejected", "prompt", "query", "response", "history"]
Tag = Literal["role_tag", "content_tag", "user_tag", "assistant_tag", "observation_tag", "function_tag", "system_tag"]
T = TypeVar("T")

_SHARE_GPT: dict[Tag, str] = dict(
    zip(get_args(Tag), ("from", "value", "human", "gpt", "observation", "function_call", "system"), strict=True)
)
_OPENAI: dict[Tag, str] = dict(
    zip(get_args(Tag), ("role", "content", "user", "assistant", "tool", "function_call", "system"), strict=True)
)
_ALPACA: dict[Column, str] = {"prompt": "instruction", "query": "input", "response": "output"}


class Template(BaseConfig):
    """The purposes of a file's columns: an entry of LLaMA-Factory's `dataset_info.json`."""

    file_name: str = ""
    formatting: Literal["alpaca", "sharegpt"] = "alpaca"
    ranking: bool = False
    columns: dict[Column, str] = Field(default_factory=dict[Column, str])
    tags: dict[Tag, str] = Field(default_factory=dict[Tag, str])

    @property
    def roles(self) -> dict[str, str]:
        """The roles of a chat template, by who speaks."""
        tags, roles = _SHARE_GPT | self.tags, ("user", "assistant", "tool", "assistant", "system")
        return {tags[tag]: role for tag, role in zip(get_args(Tag)[2:], roles, strict=True)}

    def get(self, record: Record, column: Column) -> Any:
        """The value of a row in a column; None for nothing. Where columns are named, there are no others."""
        defaults = _ALPACA if self.formatting == "alpaca" else {"messages": "conversations"}
        return record.get((self.columns or defaults).get(column, ""))

    def require(self, record: Record, column: Column) -> Any:
        """The same; DataError for nothing."""
        if (value := self.get(record, column)) is None:
            raise DataError(f"got the columns {', '.join(record)}, and nothing in the one for {column}. {_REMEDY}")
        return value


_BESIDE: dict[Column, str] = {name: name for name in ("system", "tools", "images", "chosen", "rejected")}
_TEMPLATES = {
    "messages": Template(formatting="sharegpt", columns={**_BESIDE, "messages": "messages"}, tags=_OPENAI),
    "prompt": Template(formatting="sharegpt", columns={**_BESIDE, "messages": "prompt", "response": "completion"}, tags=_OPENAI),
    "conversations": Template(formatting="sharegpt", columns={**_BESIDE, "messages": "conversations"}),
    "instruction": Template(columns={**_BESIDE, **_ALPACA, "history": "history"}),
    "chosen": Template(formatting="sharegpt", columns=_BESIDE, tags=_OPENAI),
}
"""Of rows that nothing describes, by the column that tells them apart. `prompt`, and `chosen` without it, are TRL's."""
_PROMPT_TEXT = Template(columns={**_BESIDE, "prompt": "prompt", "response": "completion"}, tags=_OPENAI)


def write_own_rows(source: str, validation_source: str, folder: Path, *, pairs: bool) -> None:
    """Write `train.jsonl`, `validation.jsonl`, which may be empty, and a store of their images into a folder. Raises DataError
    where a source is missing, empty or of another kind, a row cannot be learned from, or an image is not there.

    Args:
        source: a file, or the folder of a data set.
        validation_source: the same for validation; where it is empty a data set's own split of that name is taken.
        pairs: whether rows are pairs of replies, and not conversations.
    """
    store = ImageStore(folder / IMAGES_DIR_NAME)
    for split, named in (("train", source), ("validation", validation_source)):
        path, num_rows = Path(named or source).expanduser(), 0
        with whole_or_absent(folder / f"{split}.jsonl") as scratch, scratch.open("w", encoding="utf-8") as lines:
            is_there = named or (_is_data_set(path) and split in _load_splits(path))
            for row in _read_source(path, split, store, pairs) if is_there else ():
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
                num_rows += 1
        if named and not num_rows:
            raise DataError(f"{path}: no rows, expected one conversation at least. Name another file or folder.")
        _logger.info(f"finetune: {num_rows:,} rows for {split}" + (f" from {path}" if num_rows else ""))


def _read_source(source: Path, split: str, store: ImageStore, pairs: bool) -> Iterator[Row]:
    path, template = _find_template(source)
    images = QuestionImages(store, [path if path.is_dir() else path.parent], _MAX_PIXELS)
    parse = partial(to_row, template=template, images=images, pairs=pairs)
    for place, row in _read_data_set(path, split, parse) if path.is_dir() else _read_file(path, parse):
        if isinstance(row, Problem):
            raise DataError(f"{place}: {row.reason}")
        yield {**row, "trajectory_id": to_printable(place)}  # by which messages name a row


def _find_template(source: Path) -> tuple[Path, Template | None]:
    """The file or data set that is meant, and what the `dataset_info.json` in its folder says of it."""
    if not source.exists():
        raise DataError(f"{source}: no such file or folder. Check finetune.data and finetune.validation_data.")
    folder = source if source.is_dir() else source.parent
    described = folder / DESCRIPTION_NAME
    if _is_data_set(source) or not described.is_file():
        return source, None
    entries: dict[str, Any] = {}
    try:
        found = parse_json(described.read_bytes()).items()
        named = {name: entry for name, entry in found if entry.get("file_name")}
        entries = {name: entry for name, entry in named.items() if source.is_dir() or entry["file_name"] == source.name}
        templates = [Template.model_validate(entry) for entry in entries.values()]
    except (ValidationError, ValueError, AttributeError) as error:
        keys, names = ", ".join(Template.model_fields), ", ".join(entries) or "each entry"
        raise DataError(
            f"{described}: expected of {names} the keys {keys}, as LLaMA-Factory has them, got: {error!s:.500}"
        ) from None
    if len(templates) > 1 or (source.is_dir() and not templates):
        meant = ", ".join(template.file_name for template in templates) or "none"
        raise DataError(f"{described}: describes {len(templates)} files ({meant}), expected one. Name one that has one entry.")
    return (folder / templates[0].file_name, templates[0]) if templates else (source, None)


def _is_data_set(path: Path) -> bool:
    """True for a folder that is to be one of Hugging Face's datasets."""
    return path.is_dir() and (any((path / name).exists() for name in _SAVED_NAMES) or not (path / DESCRIPTION_NAME).exists())


def _load_splits(folder: Path) -> dict[str, Any]:
    """The splits of a data set: of a saved one each an iterable of rows with images as they are written, otherwise a list of its
    files in the folder, or in its folder `data`."""
    if any((folder / name).exists() for name in _SAVED_NAMES):
        from datasets import load_from_disk  # which loads PyTorch

        found = [(path.name, path) for path in sorted(folder.iterdir()) if (path / _SAVED_NAMES[0]).exists()]
        saved: dict[str, Any] = {}
        for name, path in found or [("train", folder)]:
            saved[name] = read_one("broken_file", str(path), load_from_disk, str(path))
            if isinstance(saved[name], Problem):
                raise DataError(f"{path}: {saved[name].reason}")
            _refuse_json_type(path, str(saved[name].features))
        return {name: split.to_iterable_dataset().decode(False) for name, split in saved.items()}
    named = [(path, found) for path in sorted(folder.iterdir()) if (found := _SPLIT_NAME.fullmatch(path.name))]
    if not named and (folder / "data").is_dir():
        return _load_splits(folder / "data")
    if not named:
        raise DataError(
            f"{folder}: no data set of Hugging Face, no {', '.join(SUFFIXES)} and no {DESCRIPTION_NAME} of LLaMA-Factory."
        )
    return {found[1]: [path for path, other in named if other[1] == found[1]] for _, found in named}


def _read_data_set(folder: Path, split: str, parse: Callable[[Record], T]) -> Iterator[tuple[str, T | Problem]]:
    """The rows of a split; as a whole data set that was named for validation the only one is taken."""
    splits = _load_splits(folder)
    name = next(iter(splits)) if split == "validation" and len(splits) == 1 else split
    if name not in splits:
        raise DataError(f"{folder}: has the splits {', '.join(splits)}, expected {split} among them. Rename one, or name a file.")
    if isinstance(files := splits[name], list):
        for path in files:
            yield from _read_file(path, parse)
        return
    for number, row in enumerate(files, start=1):
        place = f"{folder}, {name} row {number}"
        yield place, read_one("broken_record", place, parse, row)


def _read_file(path: Path, parse: Callable[[Record], T]) -> Iterator[tuple[str, T | Problem]]:
    if path.suffix.lower() == ".json":
        return _read_array(path, parse)
    if path.suffix.lower() == ".parquet" and path.is_file():
        schema: Any = read_one("broken_file", str(path), pq.read_schema, path)
        _refuse_json_type(path, str(getattr(schema, "metadata", "")))
    return read_records(path, parse)


def _refuse_json_type(path: Path, features: str) -> None:
    """Refuse values in which what was a list or a number cannot be told from a text that spells it."""
    if re.search(r"\bJson\b", features):
        raise DataError(f"{path}: has values of the type Json of Hugging Face's datasets. Write it as JSON Lines (to_json).")


def _read_array(path: Path, parse: Callable[[Record], T]) -> Iterator[tuple[str, T | Problem]]:
    """The rows of a file that is one list."""
    rows = read_one("broken_file", str(path), lambda: parse_json(path.read_bytes()))
    if not isinstance(rows, list):
        got = rows.reason if isinstance(rows, Problem) else f"got {type(rows).__name__}"
        raise DataError(f"{path}: expected a list of rows; files with a row a line are {' and '.join(SUFFIXES[:2])}: {got}")
    for number, row in enumerate(rows, start=1):
        yield f"{path}, row {number}", read_one("broken_record", str(path), parse, row)


def to_row(record: Record, template: Template | None, images: QuestionImages, pairs: bool) -> Row:
    """A row for `dpo` if `pairs` says so, otherwise for `sft`, which learns every reply of the assistant. Raises DataError where
    columns are missing, a message is none, there is no reply, or the images are not those that the messages show."""
    record = _drop_nulls(record)
    writer = _RowWriter(record, template or _choose_template(record, pairs))
    row = writer.write_pair() if pairs else writer.write_conversation()
    if next(writer.waiting, None) is not None:
        raise DataError(f"names more images than its messages show. Put {_IMAGE} where each of them belongs.")
    keys = [key for image in writer.shown for key in images.keep({"images": [image]})]
    row |= ({"images": keys} if keys else {}) | ({"tools": tools} if (tools := writer.read_tools()) else {})
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"contains half of a surrogate pair, {error.object[error.start]!r}. Take it out.") from None
    return row


def _drop_nulls(value: Any) -> Any:
    """A value without the keys that are null: a table has them wherever another row has something there."""
    if isinstance(value, list):
        return [_drop_nulls(item) for item in value]
    return {name: _drop_nulls(item) for name, item in value.items() if item is not None} if isinstance(value, dict) else value


def _choose_template(record: Record, pairs: bool) -> Template:
    found = [name for name in (("prompt", *_TEMPLATES) if pairs else _TEMPLATES) if name in record]
    if not found:
        raise DataError(f"got the columns {', '.join(record)}, expected one of {', '.join(_TEMPLATES)}. {_REMEDY}")
    return _PROMPT_TEXT if found[0] == "prompt" and isinstance(record["prompt"], str) else _TEMPLATES[found[0]]


class _RowWriter:
    """Writes the messages of one row; of the images that it names some are `waiting` for a message that shows them."""

    def __init__(self, record: Record, template: Template) -> None:
        self._record, self._template, self._tags = record, template, _SHARE_GPT | template.tags
        self._named = template.get(record, "images")
        self.waiting = iter(self._named if isinstance(self._named, list) else [self._named] if self._named else [])
        self.shown: list[Any] = []

    def write_conversation(self) -> dict[str, Any]:
        """The columns of `TrainedTurns`."""
        messages = self._list_messages(with_reply=True)
        num_replies = sum(message["role"] == "assistant" for message in messages)
        if not num_replies:
            raise DataError("no message is the assistant's, so there is nothing to learn. Leave the row out.")
        return {"messages": messages, "num_prompt_messages": 0, "train_turns": [True] * num_replies}

    def write_pair(self) -> dict[str, Any]:
        """The columns of `PreferencePair`. Sides that begin with the prompt are cut to what follows it, and where there is none
        what both begin with is the prompt."""
        prompt = self._list_messages(with_reply=False)
        num_shown = len(self.shown)
        sides = [self._read_side(side) for side in _SIDES]
        if len(self.shown) > num_shown:
            raise DataError("chosen or rejected shows an image. Show it in prompt, and begin chosen and rejected with the reply.")
        sides = [said[len(prompt) :] if said[: len(prompt)] == prompt else said for said in sides]
        if all(message["role"] == "system" for message in prompt):
            same = [ours for ours, _ in takewhile(lambda both: both[0] == both[1], zip(*sides, strict=False))]
            prompt, sides = prompt + same, [said[len(same) :] for said in sides]
        if not prompt or prompt[-1]["role"] in ("system", "assistant"):
            raise DataError("the prompt is empty or ends with a reply. End it before chosen and rejected.")
        if not all(said and said[0]["role"] == "assistant" for said in sides):
            raise DataError("expected chosen and rejected to be a reply of the assistant each, after the same messages or alone.")
        return {"prompt": prompt, **dict(zip(_SIDES, sides, strict=True))}

    def read_tools(self) -> list[Any]:
        """The functions of the row, which may be JSON."""
        found = self._template.get(self._record, "tools") or []
        with suppress(ValueError):
            tools = parse_json(found) if isinstance(found, str) else found
            if isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools):
                return tools
        raise DataError(f"got the tools {found!r:.80}, expected a list of functions in OpenAI's form, or that as JSON")

    def _list_messages(self, *, with_reply: bool) -> list[Message]:
        """The messages, with what is to be replied or without."""
        record, get, require = self._record, self._template.get, self._template.require
        system = get(record, "system")
        opening = [self._write("system", system)] if system else []
        if self._template.formatting == "sharegpt":
            opening += self._read(require(record, "messages") if with_reply else get(record, "messages") or [])
            return opening + (self._read_side("response") if with_reply and get(record, "response") is not None else [])
        asked = "\n".join(filter(None, (require(record, "prompt"), get(record, "query"))))
        said = [*(text for turn in get(record, "history") or [] for text in turn), asked]
        written = opening + [self._write(("user", "assistant")[place % 2], text) for place, text in enumerate(said)]
        return written + (self._read_side("response") if with_reply else [])

    def _read_side(self, column: Column) -> list[Message]:
        """The messages of a column in which a text is a reply."""
        found = self._template.require(self._record, column)
        return [self._write("assistant", found)] if isinstance(found, str) else self._read(found)

    def _read(self, found: Any) -> list[Message]:
        return [self._read_message(item) for item in (found if isinstance(found, list) else [found])]

    def _read_message(self, item: Any) -> Message:
        roles, role_tag, content_tag = self._template.roles, self._tags["role_tag"], self._tags["content_tag"]
        said_by = item.get(role_tag) if isinstance(item, dict) else None
        if said_by not in roles:
            raise DataError(
                f"got the message {item!r:.80}, expected {{{role_tag}, {content_tag}}} with a {role_tag} of {', '.join(roles)}. "
                f"Name the tags of another template in a {DESCRIPTION_NAME} beside the file."
            )
        if item.get("weight", 1) != 1:
            raise DataError("a message has a weight, and every reply is learned alike. Take it out, or leave the row out.")
        content = item.get(content_tag)
        if said_by == self._tags["function_tag"]:
            content = _write_call(content)
        elif calls := item.get("tool_calls"):
            if not isinstance(content or "", str):
                raise DataError(f"got {content!r:.60} beside tool_calls, expected text")
            content = "\n".join([*filter(None, [content]), *map(_write_call, calls if isinstance(calls, list) else [calls])])
        return self._write(roles[said_by], content)

    def _write(self, role: str, content: Any) -> Message:
        """The message, with an image in the place of each `<image>` if the row names some."""
        if isinstance(content, str):
            texts = [content] if self._named is None else content.split(_IMAGE)
            content = [part for text in texts for part in ({"type": "image"}, {"type": "text", "text": text})][1:]
        if not isinstance(content, list):
            raise DataError(f"got {content!r:.60} ({type(content).__name__}) as what the {role} says, expected text")
        parts = [self._write_part(part) for part in content if part != {"type": "text", "text": ""}]
        if role == "assistant" and not any(part.get("text", "").strip() for part in parts):
            raise DataError("a reply of the assistant is empty. Leave the row out.")
        return {"role": role, "content": parts}

    def _write_part(self, part: Any) -> dict[str, str]:
        match part:
            case {"type": "text", "text": str(text)} if self._named is None or _IMAGE not in text:
                return {"type": "text", "text": text}
            case {"type": "image_url", "image_url": {"url": image}} | {"type": "image", "image": image} if image:
                self.shown.append(image)
            case {"type": "image"} if (image := next(self.waiting, None)) is not None:
                self.shown.append(image)
            case _:
                expected = "text, or an image that the row names in its column images, shown once"
                raise DataError(f"got {part!r:.80} in a message, expected {expected}")
        return {"type": "image"}


def _write_call(call: Any) -> str:
    """A call of a function, which or whose arguments may be JSON, as this project's agent and Qwen's templates write it."""
    try:
        found = parse_json(call) if isinstance(call, str) else call.get("function", call)
        arguments = parse_json(found["arguments"]) if isinstance(found["arguments"], str) else found["arguments"]
        return render_call(found["name"], {**arguments})
    except (AttributeError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"got {call!r:.80} as the call of a function, expected its name and arguments ({error!r})") from None
