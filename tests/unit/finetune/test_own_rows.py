"""Conversations in the formats of other trainers become the rows that sft and dpo read."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict, Image, List
from PIL import Image as Pictures

from drag_ray.engine.conversation import read_conversation
from drag_ray.errors import ConfigError, DataError
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.own_rows import write_own_rows
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import check_stages, compute_identity
from drag_ray.pipeline.stages import STAGES

MESSAGES = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Where do gulls sleep?"},
    {"role": "assistant", "content": "<search>gulls</search>"},
    {"role": "user", "content": "Page 3: on cliffs."},
    {"role": "assistant", "content": "On cliffs."},
]
SHARE_GPT = {
    "system": "Be short.",
    "conversations": [
        {"from": {"user": "human", "assistant": "gpt"}[message["role"]], "value": message["content"]} for message in MESSAGES[1:]
    ],
}
ALPACA = {
    "system": "Be short.",
    "history": [["Where do gulls sleep?", "<search>gulls</search>"]],
    "instruction": "Page 3: on cliffs.",
    "output": "On cliffs.",
}


def write_lines(path: Path, *rows: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read(
    source: Path, tmp_path: Path, validation: str = "", split: str = "train", *, pairs: bool = False
) -> list[dict[str, Any]]:
    write_own_rows(str(source), validation, tmp_path / "out", pairs=pairs)
    return [json.loads(line) for line in (tmp_path / "out" / f"{split}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("row", [{"messages": MESSAGES}, SHARE_GPT, ALPACA], ids=["messages", "sharegpt", "alpaca"])
def test_every_reply_of_a_conversation_is_learned_whatever_its_format(tmp_path: Path, row: dict[str, Any]) -> None:
    [written] = read(write_lines(tmp_path / "mine.jsonl", row), tmp_path)
    conversation = read_conversation(written)
    assert conversation.messages == MESSAGES
    assert conversation.trained == (2, 4)
    assert written["trajectory_id"] == f"{tmp_path / 'mine.jsonl'}:1"
    assert (tmp_path / "out" / "validation.jsonl").read_text() == ""


def test_dataset_info_says_what_columns_and_tags_are_for(tmp_path: Path) -> None:
    turns = [{"who": "me", "what": "Where do gulls sleep?"}, {"who": "it", "what": "On cliffs."}]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.json").write_text(json.dumps([{"talk": turns, "images": ["not read"]}]))
    entry = {
        "file_name": "a.json",
        "formatting": "sharegpt",
        "columns": {"messages": "talk"},
        "tags": {"role_tag": "who", "content_tag": "what", "user_tag": "me", "assistant_tag": "it"},
    }
    description = tmp_path / "mine" / "dataset_info.json"
    description.write_text(json.dumps({"a": entry}))
    asked = [{"role": "user", "content": "Where do gulls sleep?"}, {"role": "assistant", "content": "On cliffs."}]
    for source in (tmp_path / "mine", tmp_path / "mine" / "a.json"):
        assert read_conversation(read(source, tmp_path)[0]).messages == asked

    description.write_text(json.dumps({"a": entry, "b": {"file_name": "b.json"}}))
    with pytest.raises(DataError, match=r"describes 2 files, expected one. Name one: a.json, b.json"):
        read(tmp_path / "mine", tmp_path)
    description.write_text(json.dumps({"a": entry | {"hf_hub_url": "somebody/else"}}))
    with pytest.raises(DataError, match=r"(?s)dataset_info.json: expected entries of file_name, .*hf_hub_url"):
        read(tmp_path / "mine", tmp_path)


def test_a_data_set_is_read_with_its_own_validation_split_and_images(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Pictures.new("RGB", (8, 8), "red").save(buffer, "PNG")
    parts = [{"role": "user", "content": "<image>What colour?"}, {"role": "assistant", "content": "Red."}]
    row = {"messages": parts, "images": [{"bytes": buffer.getvalue(), "path": None}]}
    data = Dataset.from_list([row, row]).cast_column("images", List(Image()))
    DatasetDict({"train": data, "validation": data.select([0])}).save_to_disk(tmp_path / "saved")
    (tmp_path / "parquet").mkdir()
    data.to_parquet(tmp_path / "parquet" / "train.parquet")
    data.select([0]).to_parquet(tmp_path / "parquet" / "validation.parquet")
    for name in ("saved", "parquet"):
        rows = read(tmp_path / name, tmp_path)
        assert [row["trajectory_id"] for row in rows] == [f"{tmp_path / name}, train row {number}" for number in (1, 2)]
        [key] = read_conversation(rows[0]).images
        assert (tmp_path / "out" / "images" / key).is_file()
        assert len((tmp_path / "out" / "validation.jsonl").read_text().splitlines()) == 1


def test_images_are_taken_where_messages_show_them(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Pictures.new("RGB", (8, 8), "red").save(buffer, "PNG")
    (tmp_path / "red.png").write_bytes(buffer.getvalue())
    address = "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
    reply = {"role": "assistant", "content": "Red."}
    named = {"images": ["red.png"]}
    shown: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": "<image>What?"}, reply], **named},
        {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What?"}]}, reply], **named},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": address}}]}, reply]},
    ]
    keys = {image for row in read(write_lines(tmp_path / "a.jsonl", *shown), tmp_path) for image in read_conversation(row).images}
    assert len(keys) == 1


def test_pairs_are_read_of_each_format(tmp_path: Path) -> None:
    asked, better, worse = (
        {"role": role, "content": text} for role, text in zip(("user", *["assistant"] * 2), "abc", strict=True)
    )
    share_gpt = [{"from": name, "value": text} for name, text in (("human", "a"), ("gpt", "b"), ("gpt", "c"))]
    rows = [
        {"messages": [asked], "chosen": better, "rejected": [worse]},
        {"prompt": [asked], "chosen": [better], "rejected": [worse]},
        {"conversations": share_gpt[:1], "chosen": share_gpt[1], "rejected": share_gpt[2]},
        {"instruction": "a", "chosen": "b", "rejected": "c"},
    ]
    written = read(write_lines(tmp_path / "a.jsonl", *rows), tmp_path, pairs=True)
    for row in written:
        for side, text in (("chosen", "b"), ("rejected", "c")):
            said = read_conversation({**row, "completion": row[side]}).messages
            assert said == [asked, {"role": "assistant", "content": text}]


def test_calls_of_functions_are_learned_as_the_agent_writes_them(tmp_path: Path) -> None:
    call = {"name": "search", "arguments": {"query": "gulls"}}
    rows = [
        {"conversations": [{"from": "human", "value": "?"}, {"from": "function_call", "value": json.dumps(call)}], "tools": "[]"},
        {"messages": [MESSAGES[1], {"role": "assistant", "content": None, "tool_calls": [{"function": call}]}]},
    ]
    for row in read(write_lines(tmp_path / "a.jsonl", *rows), tmp_path):
        said = read_conversation(row).messages[-1]["content"]
        assert said == '<tool_call>\n{"name": "search", "arguments": {"query": "gulls"}}\n</tool_call>'


REPLY = {"role": "assistant", "content": "Yes."}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"text": "hello"}, r"a.jsonl:2: got the columns text, expected one of messages, .*Rename them.*dataset_info.json"),
        (
            {"messages": SHARE_GPT["conversations"]},
            r"a.jsonl:2: got the message .*with a role of user, assistant, tool, function_call, system",
        ),
        ({"messages": [MESSAGES[1]]}, r"a.jsonl:2: no message is the assistant's.*Leave the row out"),
        ({"messages": [{"role": "user", "content": 7}, REPLY]}, r"a.jsonl:2: got 7 \(int\) as what the user says"),
        ({"messages": [{"role": "user", "content": [{"type": "audio"}]}, REPLY]}, r"got .*audio.*expected text, or an image"),
        ({"messages": MESSAGES, "images": ["a.png"]}, r"a.jsonl:2: names more images than its messages show. Put <image>"),
        ({"messages": [{"role": "user", "content": "<image>"}, REPLY], "images": ["a.png"]}, r"a.jsonl:2: .*no file 'a.png' in "),
        ({"messages": [{"role": "user", "content": "<image>"}, REPLY]}, r"a.jsonl:2: got .*an image that the row names"),
        ({"instruction": "Where?"}, r"a.jsonl:2: got the columns instruction, and nothing in the one for response"),
    ],
)
def test_the_first_row_that_cannot_be_learned_is_named_with_its_line(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        read(write_lines(tmp_path / "a.jsonl", {"messages": MESSAGES}, row), tmp_path)


def test_files_that_hold_nothing_to_learn_are_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.jsonl").write_text(json.dumps({"messages": MESSAGES}) + '\n{"messages": [\n')
    with pytest.raises(DataError, match=r"cut.jsonl:2: not JSON"):
        read(tmp_path / "cut.jsonl", tmp_path)
    (tmp_path / "lines.json").write_text('{"messages": []}\n{"messages": []}\n')
    with pytest.raises(DataError, match=r"lines.json: expected a list of rows; files with a row a line are .jsonl"):
        read(tmp_path / "lines.json", tmp_path)
    with pytest.raises(DataError, match=r"empty.jsonl: no rows, expected one conversation"):
        read(write_lines(tmp_path / "empty.jsonl"), tmp_path)
    good = write_lines(tmp_path / "good.jsonl", {"messages": MESSAGES})
    with pytest.raises(DataError, match=r"empty.jsonl: no rows"):
        read(good, tmp_path, str(tmp_path / "empty.jsonl"))
    with pytest.raises(DataError, match=r"nowhere.jsonl: no such file"):
        read(tmp_path / "nowhere.jsonl", tmp_path)
    (tmp_path / "nothing").mkdir()
    with pytest.raises(DataError, match=r"nothing: neither a data set"):
        read(tmp_path / "nothing", tmp_path)
    assert len(read(good, tmp_path, str(good), "validation")) == 1


def test_finetune_needs_no_other_stage_and_notices_another_file(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "a.jsonl", {"messages": MESSAGES})
    config = RunConfig(run_dir=tmp_path / "run", finetune=FinetuneConfig(data=str(source)))
    first = compute_identity(STAGES["finetune"], config)
    assert first.reads == {}
    write_lines(source, {"messages": MESSAGES}, {"messages": MESSAGES})
    assert compute_identity(STAGES["finetune"], config).fingerprint != first.fingerprint
    for options in ({"data": str(source), "method": "grpo"}, {"validation_data": str(source)}):
        with pytest.raises(ConfigError, match=r"finetune.data, finetune.validation_data"):
            check_stages([STAGES["finetune"]], RunConfig(finetune=FinetuneConfig.model_validate(options)))
