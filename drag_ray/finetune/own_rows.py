"""Conversations of the user's own, in the formats of other trainers, as rows that the methods sft and dpo learn from.

They are `messages` as OpenAI has them, ShareGPT, what LLaMA-Factory's `dataset_info.json` describes, and Hugging Face data sets
with such columns. All are read before training begins, and the first row that cannot be learned from ends it, with its place.
"""

import json
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from pydantic import Field, ValidationError

from drag_ray.agent.protocols.written_call import render_call
from drag_ray.config import BaseConfig
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.problems import Problem, read_one
from drag_ray.corpus.question_images import QuestionImages
from drag_ray.corpus.records import SUFFIXES, Record, read_records
from drag_ray.engine.conversation import Row
from drag_ray.engine.generate import Message
from drag_ray.errors import DataError
from drag_ray.rollout.folder import IMAGES_DIR_NAME
from drag_ray.storage.artifacts import whole_or_absent
from drag_ray.storage.json_text import parse_json

_logger = logging.getLogger(__name__)

DESCRIPTION_NAME = "dataset_info.json"
_REMEDY = f"Rename them, or say what they are for in a {DESCRIPTION_NAME} beside the file (docs/methods/own_data.md)."
_SAVED_NAMES = ("state.json", "dataset_dict.json")
"""Files that `save_to_disk` of Hugging Face's datasets leaves, with a `dataset_info.json` of its own."""
_IMAGE = "<image>"
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
        """The value of a row in a column; None for nothing."""
        alpaca = {"prompt": "instruction", "query": "input", "response": "output"}
        defaults = alpaca if self.formatting == "alpaca" else {"messages": "conversations"}
        return record.get(self.columns.get(column) or defaults.get(column, ""))

    def require(self, record: Record, column: Column) -> Any:
        """The same; DataError for nothing."""
        if (value := self.get(record, column)) is None:
            raise DataError(f"got the columns {', '.join(record)}, and nothing in the one for {column}. {_REMEDY}")
        return value


_BESIDE: dict[Column, str] = {name: name for name in ("system", "tools", "images", "chosen", "rejected")}
_TEMPLATES = {
    "messages": Template(formatting="sharegpt", columns={**_BESIDE, "messages": "messages"}, tags=_OPENAI),
    "prompt": Template(formatting="sharegpt", columns={**_BESIDE, "messages": "prompt"}, tags=_OPENAI),  # TRL's pairs
    "conversations": Template(formatting="sharegpt", columns=_BESIDE),
    "instruction": Template(columns={**_BESIDE, "history": "history"}),
}
"""Of rows that nothing describes, by the column that tells them apart."""


def write_own_rows(source: str, validation_source: str, folder: Path, *, pairs: bool) -> None:
    """Write `train.jsonl`, `validation.jsonl`, which may be empty, and a store of their images into a folder.

    Args:
        source: a file, or the folder of a data set.
        validation_source: the same for validation; where it is empty a data set's own split of that name is taken.
        pairs: whether rows are pairs of replies, and not conversations.

    Raises:
        DataError: a source is missing, empty or of another kind, a row cannot be learned from, or an image is not there.
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
    if path.is_dir():
        rows = _read_data_set(path, split, parse)
    else:
        rows = _read_array(path, parse) if path.suffix.lower() == ".json" else read_records(path, parse)
    for place, row in rows:
        if isinstance(row, Problem):
            raise DataError(f"{place}: {row.reason}")
        yield {**row, "trajectory_id": place}  # by which messages name a row


def _find_template(source: Path) -> tuple[Path, Template | None]:
    """The file or data set that is meant, and what the `dataset_info.json` in its folder says of it."""
    if not source.exists():
        raise DataError(f"{source}: no such file or folder. Check finetune.data and finetune.validation_data.")
    folder = source if source.is_dir() else source.parent
    described = folder / DESCRIPTION_NAME
    if _is_data_set(source) or not described.is_file():
        return source, None
    try:
        templates = {entry["file_name"]: Template.model_validate(entry) for entry in parse_json(described.read_bytes()).values()}
    except (ValidationError, ValueError, AttributeError, KeyError, TypeError) as error:
        keys = ", ".join(Template.model_fields)
        raise DataError(f"{described}: expected entries of {keys}, as LLaMA-Factory has them, got: {error!s:.500}") from None
    if source.is_dir() and len(templates) != 1:
        raise DataError(f"{described}: describes {len(templates)} files, expected one. Name one: {', '.join(templates)}.")
    path = folder / next(iter(templates)) if source.is_dir() else source
    return path, templates.get(path.name)


def _is_data_set(path: Path) -> bool:
    """True for a folder that is to be one of Hugging Face's datasets."""
    return path.is_dir() and (any((path / name).exists() for name in _SAVED_NAMES) or not (path / DESCRIPTION_NAME).exists())


def _load_splits(folder: Path) -> dict[str, Any]:
    """The splits of a data set, each an iterable of rows with images as they are written."""
    from datasets import Dataset, load_dataset, load_from_disk  # which loads PyTorch

    def load() -> dict[str, Any]:
        if not any((folder / name).exists() for name in _SAVED_NAMES):
            return {str(name): rows.decode(False) for name, rows in load_dataset(str(folder), streaming=True).items()}
        saved = load_from_disk(str(folder))
        splits = {"train": saved} if isinstance(saved, Dataset) else saved
        return {str(name): rows.to_iterable_dataset().decode(False) for name, rows in splits.items()}

    loaded = read_one("broken_file", str(folder), load)
    if isinstance(loaded, Problem):
        raise DataError(
            f"{folder}: neither a data set of Hugging Face nor a {DESCRIPTION_NAME} of LLaMA-Factory: {loaded.reason}"
        )
    return loaded


def _read_data_set(folder: Path, split: str, parse: Callable[[Record], T]) -> Iterator[tuple[str, T | Problem]]:
    splits = _load_splits(folder)
    if split not in splits and len(splits) > 1:
        raise DataError(f"{folder}: has the splits {', '.join(splits)}, expected {split} among them. Rename one, or name a file.")
    name = split if split in splits else next(iter(splits))
    for number, row in enumerate(splits[name], start=1):
        place = f"{folder}, {name} row {number}"
        yield place, read_one("broken_record", place, parse, row)


def _read_array(path: Path, parse: Callable[[Record], T]) -> Iterator[tuple[str, T | Problem]]:
    """The rows of a file that is one list."""
    rows = read_one("broken_file", str(path), lambda: parse_json(path.read_bytes()))
    if not isinstance(rows, list):
        got = rows.reason if isinstance(rows, Problem) else f"got {type(rows).__name__}"
        raise DataError(f"{path}: expected a list of rows; files with a row a line are {' and '.join(SUFFIXES[:2])}: {got}")
    for number, row in enumerate(rows, start=1):
        yield f"{path}, row {number}", read_one("broken_record", str(path), parse, row)


def to_row(record: Record, template: Template | None, images: QuestionImages, pairs: bool) -> Row:
    """A row for `dpo` if `pairs` says so, otherwise for `sft`, which learns every reply of the assistant.

    Raises:
        DataError: columns are missing, a message is none, there is no reply, or the images are not those that the messages show.
    """
    if template is None:
        told = [template for name, template in _TEMPLATES.items() if record.get(name) is not None]
        if not told:
            raise DataError(f"got the columns {', '.join(record)}, expected one of {', '.join(_TEMPLATES)}. {_REMEDY}")
        template = told[0]
    writer = _RowWriter(record, template)
    messages = writer.list_messages(with_reply=not pairs)
    num_replies = sum(message["role"] == "assistant" for message in messages)
    if pairs:
        row = {"prompt": messages, **{side: writer.read(template.require(record, side)) for side in ("chosen", "rejected")}}
    elif num_replies:
        row = {"messages": messages, "num_prompt_messages": 0, "train_turns": [True] * num_replies}
    else:
        raise DataError("no message is the assistant's, so there is nothing to learn. Leave the row out.")
    if next(writer.waiting, None) is not None:
        raise DataError(f"names more images than its messages show. Put {_IMAGE} where each of them belongs.")
    keys = [key for image in writer.shown for key in images.keep({"images": [image]})]
    return row | ({"images": keys} if keys else {}) | ({"tools": tools} if (tools := template.get(record, "tools")) else {})


class _RowWriter:
    """Writes the messages of one row; of the images that it names some are `waiting` for a message that shows them."""

    def __init__(self, record: Record, template: Template) -> None:
        self._record, self._template, self._tags = record, template, _SHARE_GPT | template.tags
        named = template.get(record, "images")
        self._named: list[Any] = named if isinstance(named, list) else [named] if named else []
        self.waiting = iter(self._named)
        self.shown: list[Any] = []

    def list_messages(self, *, with_reply: bool) -> list[Message]:
        """The messages; of the columns of Alpaca with what is to be replied, or without."""
        record, get, require = self._record, self._template.get, self._template.require
        system = get(record, "system")
        opening = [self._write("system", system)] if system else []
        if self._template.formatting == "sharegpt":
            return opening + self.read(require(record, "messages"))
        asked = "\n".join(filter(None, (require(record, "prompt"), get(record, "query"))))
        said = [*(text for turn in get(record, "history") or [] for text in turn), asked]
        said += [require(record, "response")] if with_reply else []
        return opening + [self._write(("user", "assistant")[place % 2], text) for place, text in enumerate(said)]

    def read(self, found: Any) -> list[Message]:
        """Messages of a list or of one; a text is a reply."""
        if isinstance(found, str):
            return [self._write("assistant", found)]
        return [self._read_message(item) for item in (found if isinstance(found, list) else [found])]

    def _read_message(self, item: Any) -> Message:
        roles, role_tag, content_tag = self._template.roles, self._tags["role_tag"], self._tags["content_tag"]
        said_by = item.get(role_tag) if isinstance(item, dict) else None
        if said_by not in roles:
            raise DataError(
                f"got the message {item!r:.80}, expected {{{role_tag}, {content_tag}}} with a {role_tag} of {', '.join(roles)}. "
                f"Name the tags of another template in a {DESCRIPTION_NAME} beside the file."
            )
        content = item.get(content_tag)
        if said_by == self._tags["function_tag"]:
            content = _write_call(content)
        elif calls := item.get("tool_calls"):
            content = "\n".join([*filter(None, [content]), *(_write_call(call["function"]) for call in calls)])
        return self._write(roles[said_by], content)

    def _write(self, role: str, content: Any) -> Message:
        """The message, with an image in the place of each `<image>` if the row names some."""
        if isinstance(content, str):
            texts = content.split(_IMAGE) if self._named else [content]
            content = [part for text in texts for part in ({"type": "image"}, {"type": "text", "text": text})][1:]
        if not isinstance(content, list):
            raise DataError(f"got {content!r:.60} ({type(content).__name__}) as what the {role} says, expected text")
        return {"role": role, "content": [self._write_part(part) for part in content if part != {"type": "text", "text": ""}]}

    def _write_part(self, part: Any) -> dict[str, str]:
        match part:
            case {"type": "text", "text": str(text)} if _IMAGE not in text:
                return {"type": "text", "text": text}
            case {"type": "image_url", "image_url": {"url": image}} | {"type": "image", "image": image} if image:
                self.shown.append(image)
            case {"type": "image"} if (image := next(self.waiting, None)) is not None:
                self.shown.append(image)
            case _:
                raise DataError(
                    f"got {part!r:.80} in a message, expected text, or an image that the row names in its column images"
                )
        return {"type": "image"}


def _write_call(call: Any) -> str:
    """A call of a function, which or whose arguments may be JSON, as this project's agent and Qwen's templates write it."""
    try:
        found = parse_json(call) if isinstance(call, str) else call
        arguments = parse_json(found["arguments"]) if isinstance(found["arguments"], str) else found["arguments"]
        return render_call(found["name"], arguments)
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"got {call!r:.80} as the call of a function, expected its name and arguments ({error!r})") from None
