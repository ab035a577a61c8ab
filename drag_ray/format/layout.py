"""The last step to a training row: the column `tools` where a protocol has some, images as parts and references."""

from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa

from drag_ray.agent.prompts import hide_old_images
from drag_ray.engine.generate import Message, list_images
from drag_ray.format.columns import MESSAGES, MESSAGES_WITH_IMAGES, get_input_column
from drag_ray.process.conversations import IMAGE_MARK


@dataclass(frozen=True)
class Layout:
    """What all rows of a run have in common, whatever their format.

    Attributes:
        has_tools: the chat template showed functions to the model; the rows name them in `tools`, as JSON.
        has_images: the policy saw page images; contents are lists of parts, and `images` names the images.
        image_searches: of how many searches the policy saw the images at once; 0 is all.
    """

    has_tools: bool = False
    has_images: bool = False
    image_searches: int = 0

    def extend(self, schema: pa.Schema) -> pa.Schema:
        """The schema of the rows of a format in this layout."""
        if self.has_images:
            types = [MESSAGES_WITH_IMAGES if field.type == MESSAGES else field.type for field in schema]
            schema = pa.schema(list(zip(schema.names, types, strict=True))).append(pa.field("images", pa.list_(pa.string())))
        return schema.append(pa.field("tools", pa.string())) if self.has_tools else schema

    def apply(self, rows: pl.DataFrame, schema: pa.Schema, tools: pl.DataFrame) -> pa.Table:
        """The rows as a table of `extend(schema)`, without those whose every learned turn was written with images in sight that
        had left the prompt by the end.

        Args:
            rows: with the columns of `schema`, images within the contents (see `IMAGE_MARK`).
            tools: what the model of each trajectory_id was shown, empty where that was no function.
        """
        if self.has_tools:
            shown = tools.select("trajectory_id", pl.when(pl.col("tools") != "").then("tools"))
            rows = rows.join(shown, on="trajectory_id", how="left", maintain_order="left")
        if self.has_images:
            columns = [field.name for field in schema if field.type == MESSAGES]
            shown = [self._show_images(row, columns) for row in rows.iter_rows(named=True)]
            learned = [row for row in shown if any(row.get("train_turns", [True]))]
            return pa.Table.from_pylist(learned, schema=self.extend(schema))
        extended = self.extend(schema)
        return rows.select(extended.names).to_arrow().cast(extended)

    def show_inputs(self, conversations: pl.Series) -> pl.Series:
        """Conversations as the model sees them: for each its messages and the images in them."""
        shown = [hide_old_images([_split_parts(item) for item in messages], self.image_searches) for messages in conversations]
        rows = [{"messages": [_as_parts(item) for item in messages], "images": list_images(messages)} for messages in shown]
        schema = pa.schema([("messages", MESSAGES_WITH_IMAGES), ("images", pa.list_(pa.string()))])
        frame = pl.from_arrow(pa.Table.from_pylist(rows, schema=schema))
        assert isinstance(frame, pl.DataFrame)
        return frame.to_struct()

    def _show_images(self, row: dict[str, Any], columns: list[str]) -> dict[str, Any]:
        """A row of any format whose `columns` are messages."""
        parted = {name: [_split_parts(item) for item in row[name]] for name in columns}
        column = get_input_column(parted)
        shown = hide_old_images(parted[column], self.image_searches)
        row = {**row, **parted, column: shown, "images": list_images(shown)}
        if "train_turns" in row:
            row["train_turns"] = self._keep_faithful(row["train_turns"], parted[column], shown, row["num_prompt_messages"])
        return {name: [_as_parts(item) for item in value] if name in parted else value for name, value in row.items()}

    def _keep_faithful(self, train_turns: list[bool], messages: list[Message], shown: list[Message], start: int) -> list[bool]:
        """Train only the turns whose prompt looked as it does at the end: an earlier one may have had images that are gone."""
        replies = [place for place in range(start, len(messages)) if messages[place]["role"] == "assistant"]
        return [
            wanted and hide_old_images(messages[:place], self.image_searches) == shown[:place]
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
