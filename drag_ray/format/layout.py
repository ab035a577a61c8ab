"""The last step to a training row: the column `tools` where a protocol has some, images as parts and references, and none of what
had left the prompt."""

from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from drag_ray.agent.shown_images import Hidden, leave_out
from drag_ray.engine.generate import Message, list_images
from drag_ray.format.columns import MESSAGES, MESSAGES_WITH_IMAGES, get_input_column
from drag_ray.process.trajectories import IMAGE_MARK

SHOWN_COLUMNS = ("tools", "hidden")
"""What of a trajectory says what its model was shown besides the messages."""

HiddenParts = dict[str, Any]
"""{"num_prompt_messages", "hidden_images", "hidden_messages"} of a reply."""


@dataclass(frozen=True)
class Layout:
    """The layout that all rows of a run share, whatever their format.

    Attributes:
        has_tools: the chat template showed functions to the model; the rows name them in `tools`, as JSON.
        has_images: the policy saw images; contents are lists of parts, and `images` names the images.
        hides_text: texts had left some prompts.
    """

    has_tools: bool = False
    has_images: bool = False
    hides_text: bool = False

    @classmethod
    def of(cls, trajectories: pl.DataFrame) -> "Layout":
        """The layout of the rows of trajectories. `trajectories`: tools, has_images and hidden of each."""
        hidden = pl.col("hidden").list.eval(pl.element().struct.field("hidden_messages").list.len() > 0).list.any()
        has_tools, has_images = (trajectories["tools"] != "").any(), trajectories["has_images"].any()
        return cls(bool(has_tools), bool(has_images), bool(trajectories.select(hidden.any()).item()))

    def extend(self, schema: pa.Schema) -> pa.Schema:
        """The schema of the rows of a format in this layout."""
        if self.has_images:
            types = [MESSAGES_WITH_IMAGES if field.type == MESSAGES else field.type for field in schema]
            schema = pa.schema(list(zip(schema.names, types, strict=True))).append(pa.field("images", pa.list_(pa.string())))
        return schema.append(pa.field("tools", pa.string())) if self.has_tools else schema

    def apply(self, rows: pl.DataFrame, schema: pa.Schema, shown: pl.DataFrame) -> pa.Table:
        """The rows as a table of `extend(schema)`, without those whose every learned turn was written with images or texts in
        sight that had left the prompt by the end.

        Args:
            rows: with the columns of `schema`, images within the contents (see `IMAGE_MARK`).
            shown: `SHOWN_COLUMNS` of each trajectory_id: the functions that the model was shown, empty where there was none, and
                what its prompts were without.
        """
        if self.has_tools:
            tools = shown.select("trajectory_id", pl.when(pl.col("tools") != "").then("tools"))
            rows = rows.join(tools, on="trajectory_id", how="left", maintain_order="left")
        if self.has_images or self.hides_text:
            rows = rows.join(shown.select("trajectory_id", "hidden"), on="trajectory_id", how="left", maintain_order="left")
            columns = [field.name for field in schema if field.type == MESSAGES]
            parted = [self._show(row, columns, row.pop("hidden")) for row in rows.iter_rows(named=True)]
            learned = [row for row in parted if any(row.get("train_turns", [True]))]
            return pa.Table.from_pylist(learned, schema=self.extend(schema))
        extended = self.extend(schema)
        return rows.select(extended.names).to_arrow().cast(extended)

    def show_inputs(self, conversations: pl.Series, hidden: pl.Series) -> pl.Series:
        """Conversations as the model sees them: for each its messages and, where there are any, the images in them. `hidden`:
        that of the trajectory of each."""
        shown = [
            leave_out([_split_parts(item) for item in messages], find_hidden(parts, len(messages)))
            for messages, parts in zip(conversations.to_list(), hidden.to_list(), strict=True)
        ]
        if not self.has_images:
            return pl.Series(conversations.name, shown, dtype=conversations.dtype)
        rows = [{"messages": [_as_parts(item) for item in messages], "images": list_images(messages)} for messages in shown]
        schema = pa.schema([("messages", MESSAGES_WITH_IMAGES), ("images", pa.list_(pa.string()))])
        frame = pl.from_arrow(pa.Table.from_pylist(rows, schema=schema))
        assert isinstance(frame, pl.DataFrame)
        return frame.to_struct()

    def _show(self, row: dict[str, Any], columns: list[str], hidden: list[HiddenParts]) -> dict[str, Any]:
        """A row of any format whose `columns` are messages."""
        parted = {name: [_split_parts(item) for item in row[name]] for name in columns}
        column = get_input_column(parted)
        shown = leave_out(parted[column], find_hidden(hidden, len(parted[column])))
        row = {**row, **parted, column: shown, "images": list_images(shown)}
        if "train_turns" in row:
            row["train_turns"] = _keep_faithful(row["train_turns"], parted[column], shown, row["num_prompt_messages"], hidden)
        if not self.has_images:
            return row
        return {name: [_as_parts(item) for item in value] if name in parted else value for name, value in row.items()}


def find_hidden(hidden: list[HiddenParts], num_messages: int) -> Hidden:
    """The parts that the last prompt within so many messages of a conversation was without."""
    within = [prompt for prompt in hidden if prompt["num_prompt_messages"] <= num_messages]
    return Hidden(tuple(within[-1]["hidden_images"]), tuple(within[-1]["hidden_messages"])) if within else Hidden()


def _keep_faithful(
    train_turns: list[bool], messages: list[Message], shown: list[Message], start: int, hidden: list[HiddenParts]
) -> list[bool]:
    """Train only the turns whose prompt looked as it does at the end: an earlier one may have had what is gone."""
    replies = [place for place in range(start, len(messages)) if messages[place]["role"] == "assistant"]
    return [
        wanted and leave_out(messages[:place], find_hidden(hidden, place)) == shown[:place]
        for wanted, place in zip(train_turns, replies, strict=True)
    ]


def _split_parts(message: Message) -> Message:
    """A message with its content as the agent wrote it: plain text, or text parts and image parts."""
    pieces = message["content"].split(IMAGE_MARK)
    if len(pieces) == 1:
        return message
    parts = [
        {"type": "image", "image": piece} if place % 2 else {"type": "text", "text": piece} for place, piece in enumerate(pieces)
    ]
    return {**message, "content": [part for part in parts if part.get("text") != ""]}


def _as_parts(message: Message) -> Message:
    """A message with its content as a list of parts, images without their names."""
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {"role": message["role"], "content": [{"type": part["type"], "text": part.get("text")} for part in parts]}
