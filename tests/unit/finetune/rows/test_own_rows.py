"""Conversations in the formats of other trainers become the rows that sft and dpo read."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict, Image, Json, List
from PIL import Image as Pictures

from drag_ray.engine.conversation import read_conversation
from drag_ray.errors import ConfigError, DataError
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.rows.own_rows import write_own_rows
from drag_ray.finetune.rows.tokenized_rows import LeftOut, RowTokenizer
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

    others = {"b": {"file_name": "b.json", "formatting": "openai", "split": "x"}, "c": {"hf_hub_url": "somebody/else"}}
    description.write_text(json.dumps({"a": entry} | others))
    assert len(read(tmp_path / "mine" / "a.json", tmp_path)) == 1
    description.write_text(json.dumps({"a": entry, "b": {"file_name": "b.json"}}))
    with pytest.raises(DataError, match=r"describes 2 files \(a.json, b.json\), expected one"):
        read(tmp_path / "mine", tmp_path)
    description.write_text(json.dumps({"a": entry | {"num_samples": 5}} | others))
    with pytest.raises(DataError, match=r"(?s)dataset_info.json: expected of a the keys file_name, .*num_samples"):
        read(tmp_path / "mine" / "a.json", tmp_path)


def test_columns_that_an_entry_does_not_name_are_absent(tmp_path: Path) -> None:
    write_lines(tmp_path / "a.jsonl", {"q": "a", "input": "not asked", "output": "b"})
    entry = {"file_name": "a.jsonl", "columns": {"prompt": "q", "response": "output"}}
    (tmp_path / "dataset_info.json").write_text(json.dumps({"a": entry}))
    assert read_conversation(read(tmp_path / "a.jsonl", tmp_path)[0]).messages[0]["content"] == "a"


def test_a_data_set_is_read_with_its_own_validation_split_and_images(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    Pictures.new("RGB", (8, 8), "red").save(buffer, "PNG")
    parts = [{"role": "user", "content": "<image>What colour?"}, {"role": "assistant", "content": "Red."}]
    row = {"messages": parts, "images": [{"bytes": buffer.getvalue(), "path": None}]}
    data = Dataset.from_list([row, row]).cast_column("images", List(Image()))
    DatasetDict({"train": data, "validation": data.select([0])}).save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["x::http://127.0.0.1:9/x"]}')  # nothing is fetched
    (tmp_path / "parquet").mkdir()
    data.to_parquet(tmp_path / "parquet" / "train.parquet")
    data.select([0]).to_parquet(tmp_path / "parquet" / "validation.parquet")
    for place in (f"{tmp_path / 'saved'}, train row ", f"{tmp_path / 'parquet' / 'train.parquet'}:"):
        rows = read(Path(place.split(",")[0]) if "," in place else tmp_path / "parquet", tmp_path)
        assert [row["trajectory_id"] for row in rows] == [f"{place}{number}" for number in (1, 2)]
        [key] = read_conversation(rows[0]).images
        assert (tmp_path / "out" / "images" / key).is_file()
        assert len((tmp_path / "out" / "validation.jsonl").read_text().splitlines()) == 1


@pytest.mark.parametrize("file_name", ["train.jsonl", "train-00000-of-00001.jsonl", "data/train-00000-of-00001-ab12.jsonl"])
def test_a_folder_is_read_by_the_names_of_its_files_and_its_readme_is_not_obeyed(tmp_path: Path, file_name: str) -> None:
    write_lines(tmp_path / "mine" / file_name, {"messages": MESSAGES})
    outside = write_lines(tmp_path / "outside.jsonl", {"messages": MESSAGES[1:]})
    for other in ("http://127.0.0.1:9/x.jsonl", str(outside)):
        files = f"configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: {other}"
        (tmp_path / "mine" / "README.md").write_text(f"---\n{files}\n---\n")
        [row] = read(tmp_path / "mine", tmp_path)
        assert row["trajectory_id"] == f"{tmp_path / 'mine' / file_name}:1"


def test_only_the_split_train_is_trained_on(tmp_path: Path) -> None:
    data = Dataset.from_list([{"messages": MESSAGES}])
    DatasetDict({"test": data}).save_to_disk(tmp_path / "saved")
    write_lines(tmp_path / "files" / "train_sft-00000-of-00001.jsonl", {"messages": MESSAGES})
    write_lines(tmp_path / "good.jsonl", {"messages": MESSAGES})
    for name, split in (("saved", "test"), ("files", "train_sft")):
        with pytest.raises(DataError, match=rf"{name}: has the splits {split}, expected train among them"):
            read(tmp_path / name, tmp_path)
        assert len(read(tmp_path / "good.jsonl", tmp_path, str(tmp_path / name), "validation")) == 1


def test_nulls_of_a_table_are_no_arguments_of_calls(tmp_path: Path) -> None:
    calls = [{"function": {"name": "search", "arguments": arguments}} for arguments in ({"query": "a"}, {"page": 3})]
    rows = [{"messages": [MESSAGES[1], {"role": "assistant", "content": None, "tool_calls": [call]}]} for call in calls]
    tools = [[{"type": "function", "function": {"name": "a", **more}}] for more in ({}, {"strict": True})]
    Dataset.from_list([{**row, "tools": shown} for row, shown in zip(rows, tools, strict=True)]).to_parquet(
        tmp_path / "a.parquet"
    )
    written = read(tmp_path / "a.parquet", tmp_path)
    assert [row["tools"] for row in written] == tools
    said = [read_conversation(row).messages[-1]["content"].splitlines()[1] for row in written]
    assert [json.loads(call)["arguments"] for call in said] == [{"query": "a"}, {"page": 3}]


def test_values_of_the_type_json_are_refused(tmp_path: Path) -> None:
    json_type: Any = Json()
    data = Dataset.from_list([{"messages": MESSAGES, "tools": "[]"}]).cast_column("tools", json_type)
    data.save_to_disk(tmp_path / "saved")
    data.to_parquet(tmp_path / "a.parquet")
    for name in ("saved", "a.parquet"):
        with pytest.raises(DataError, match=rf"{name}: has values of the type Json.*to_json"):
            read(tmp_path / name, tmp_path)


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
    plain = {"messages": [{"role": "user", "content": "What is <image> in HTML?"}, reply]}
    assert read_conversation(read(write_lines(tmp_path / "a.jsonl", plain), tmp_path)[0]).messages[0] == plain["messages"][0]
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
        {"prompt": "a", "chosen": "b", "rejected": "c"},
        {"prompt": "a", "messages": [asked, better], "chosen": [asked, better], "rejected": [asked, worse]},  # ultrafeedback
        {"prompt": [asked], "chosen": [asked, better], "rejected": [worse]},
        {"chosen": [asked, better], "rejected": [asked, worse]},
    ]
    written = read(write_lines(tmp_path / "a.jsonl", *rows), tmp_path, pairs=True)
    for row in written:
        for side, text in (("chosen", "b"), ("rejected", "c")):
            said = read_conversation({**row, "completion": row[side]}).messages
            assert said == [asked, {"role": "assistant", "content": text}]


@pytest.mark.parametrize("as_messages", [False, True])
def test_a_prompt_is_what_the_user_says_and_a_completion_the_reply(tmp_path: Path, as_messages: bool) -> None:
    said = [{"role": "user", "content": "What is 2+2?"}, {"role": "assistant", "content": "4"}]
    row = {"prompt": said[:1], "completion": said[1:]} if as_messages else {"prompt": "What is 2+2?", "completion": "4"}
    conversation = read_conversation(read(write_lines(tmp_path / "a.jsonl", row), tmp_path)[0])
    assert conversation.messages == said
    assert conversation.trained == (1,)


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
        (
            {"messages": [{"role": "user", "content": "<image>"}, REPLY], "images": []},
            r"a.jsonl:2: got .*an image that the row names",
        ),
        ({"messages": "hello"}, r"a.jsonl:2: got the message 'hello', expected \{role, content\}"),
        ({"prompt": "What?"}, r"a.jsonl:2: got the columns prompt, and nothing in the one for response"),
        (
            {"messages": [{"role": "user", "content": "a\ud800b"}, REPLY]},
            r"a.jsonl:2: contains half of a surrogate pair, .\\ud800",
        ),
        *(
            ({"messages": MESSAGES, "tools": tools}, r"a.jsonl:2: got the tools .*, expected a list of functions")
            for tools in (5, ["x"], "{bad", {"a": 1})
        ),
        ({"messages": [MESSAGES[1], REPLY | {"weight": 0}]}, r"a.jsonl:2: a message has a weight"),
        ({"messages": [MESSAGES[1], REPLY | {"content": " "}]}, r"a.jsonl:2: a reply of the assistant is empty"),
        *(
            ({"messages": [MESSAGES[1], REPLY | {"tool_calls": calls}]}, r"a.jsonl:2: got .* as the call of a function, expected")
            for calls in (5, ["x"], [{"function": None}], [{"function": {"name": "a", "arguments": "[]"}}])
        ),
        (
            {"messages": [MESSAGES[1], REPLY | {"content": [{"type": "text", "text": "a"}], "tool_calls": [{}]}]},
            r"a.jsonl:2: got .* beside tool_calls, expected text",
        ),
        ({"instruction": "Where?"}, r"a.jsonl:2: got the columns instruction, and nothing in the one for response"),
    ],
)
def test_the_first_row_that_cannot_be_learned_is_named_with_its_line(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        read(write_lines(tmp_path / "a.jsonl", {"messages": MESSAGES}, row), tmp_path)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"prompt": "a", "chosen": [MESSAGES[1]], "rejected": "c"}, r"a.jsonl:1: expected chosen and rejected to be a reply"),
        ({"prompt": "a", "chosen": [], "rejected": "c"}, r"a.jsonl:1: expected chosen and rejected to be a reply"),
        ({"messages": [MESSAGES[1], REPLY], "chosen": "b", "rejected": "c"}, r"a.jsonl:1: the prompt is empty or ends with"),
        ({"system": "a", "chosen": "b", "rejected": "c"}, r"a.jsonl:1: the prompt is empty or ends with a reply"),
        (
            {"prompt": "a", "chosen": REPLY | {"content": [{"type": "image", "image": "a.png"}]}, "rejected": "c"},
            r"a.jsonl:1: .*reply of the assistant is empty",
        ),
        (
            {"prompt": "a", "chosen": [MESSAGES[1] | {"content": [{"type": "image", "image": "a.png"}]}], "rejected": "c"},
            r"a.jsonl:1: chosen or rejected shows an image",
        ),
    ],
)
def test_pairs_that_cannot_be_learned_are_refused(tmp_path: Path, row: dict[str, Any], reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        read(write_lines(tmp_path / "a.jsonl", row), tmp_path, pairs=True)


def test_what_a_chat_template_refuses_is_named_with_its_line(tmp_path: Path) -> None:
    def refuse(row: Any) -> LeftOut:
        raise DataError("the model's chat template refuses the conversation")

    rows = read(write_lines(tmp_path / "a.jsonl", {"messages": MESSAGES}), tmp_path)
    with pytest.raises(DataError, match=r"row 1 \(.*a.jsonl:1\): the model's chat template refuses"):
        RowTokenizer(None, 8).tokenize_rows(rows, refuse)


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
    with pytest.raises(DataError, match=r"nothing: no data set"):
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
