import json
from pathlib import Path

import pyarrow as pa
import pytest
from factories import build_answer, build_search, build_trajectory

from drag_ray.format import dpo, kto, reward, rl_steps, sft_context, sft_query, sft_trajectory
from drag_ray.format.config import FormatConfig
from drag_ray.format.exports import ExportFile, to_llama_factory, to_ms_swift, write_dataset_info
from drag_ray.format.layout import Layout


def rows_of(builder, part) -> list[dict]:
    return builder.build_rows(part, FormatConfig()).to_dicts()


@pytest.fixture
def part(process):
    return process(
        build_trajectory(build_search("wide"), build_search("third", 3), build_search("best", 1), build_answer()),
        build_trajectory(build_search("good", 2), sample_index=1),
    )


def test_each_learned_reply_of_a_conversation_ends_a_row_of_llama_factory(part) -> None:
    row = next(row for row in rows_of(sft_trajectory, part) if row["trajectory_id"] == "q1-0")
    first, second = to_llama_factory("sft_trajectory", row)
    assert first["system"] == row["messages"][0]["content"]
    assert [turn["from"] for turn in first["conversations"]] == ["human", "gpt", "human", "gpt"]
    assert first["conversations"][-1]["value"] == "<search>third</search>"
    assert [turn["value"] for turn in second["conversations"]] == [message["content"] for message in row["messages"][1:]]


def test_llama_factory_reads_pairs_and_labels_in_its_own_columns(part) -> None:
    pair = rows_of(dpo, part)[0]
    (exported,) = to_llama_factory("dpo", pair)
    assert exported["conversations"] == [{"from": "human", "value": pair["prompt"][1]["content"]}]
    assert exported["chosen"] == {"from": "gpt", "value": "<search>good</search>"}
    assert exported["rejected"] == {"from": "gpt", "value": "<search>wide</search>"}
    labels = [next(to_llama_factory("kto", row))["kto_tag"] for row in rows_of(kto, part)]
    assert labels == [row["label"] for row in rows_of(kto, part)]
    assert list(to_llama_factory("reward", rows_of(reward, part)[0])) == []


def test_ms_swift_learns_the_marked_replies_alone(part) -> None:
    row = next(row for row in rows_of(sft_trajectory, part) if row["trajectory_id"] == "q1-0")
    (exported,) = to_ms_swift("sft_trajectory", row)
    assert [message.get("loss") for message in exported["messages"]] == [None, None, False, None, True, None, True]
    (context,) = to_ms_swift("sft_context", rows_of(sft_context, part)[0])
    assert [message["loss"] for message in context["messages"] if message["role"] == "assistant"] == [False, True]


def test_ms_swift_reads_the_other_kinds_in_its_own_columns(part) -> None:
    (pair,) = to_ms_swift("dpo", rows_of(dpo, part)[0])
    assert (pair["messages"][-1]["content"], pair["rejected_response"]) == ("<search>good</search>", "<search>wide</search>")
    assert next(to_ms_swift("kto", rows_of(kto, part)[0]))["label"] is True
    assert next(to_ms_swift("reward", rows_of(reward, part)[0]))["label"] == 0.0
    (step,) = to_ms_swift("rl_steps", rows_of(rl_steps, part)[0])
    assert [message["role"] for message in step["messages"]] == ["system", "user"]
    assert (step["recorded_reply"], step["reward"]) == ("<search>wide</search>", pytest.approx(0.3))


def test_images_and_functions_go_along() -> None:
    parts = [{"type": "text", "text": "Page "}, {"type": "image", "text": None}]
    row = {
        "prompt": [{"role": "user", "content": parts}],
        "completion": [{"role": "assistant", "content": [{"type": "text", "text": "<search>a</search>"}]}],
        "images": ["ab.png"],
        "tools": "[]",
    }
    (theirs,) = to_llama_factory("sft_context", row)
    assert theirs["conversations"][0] == {"from": "human", "value": "Page <image>"}
    assert (theirs["images"], theirs["tools"]) == (["ab.png"], "[]")
    (swift,) = to_ms_swift("sft_context", row)
    assert (swift["messages"][0]["content"], swift["images"], swift["tools"]) == ("Page <image>", ["ab.png"], "[]")


def test_files_are_written_with_a_description_of_those_that_have_rows(part, tmp_path: Path) -> None:
    table = sft_query.build_rows(part, FormatConfig()).to_arrow().cast(sft_query.SCHEMA)
    with ExportFile(tmp_path, "llama_factory", "sft_query", "train") as file:
        file.write(table)
    with ExportFile(tmp_path, "llama_factory", "reward", "train") as empty:
        empty.write(pa.Table.from_pylist(rows_of(reward, part)))
    write_dataset_info(tmp_path, [file, empty], Layout(has_tools=True))
    info = json.loads((tmp_path / "llama_factory" / "dataset_info.json").read_text())
    assert info == {
        "sft_query_train": {
            "file_name": "sft_query_train.jsonl",
            "formatting": "sharegpt",
            "columns": {"messages": "conversations", "system": "system", "tools": "tools"},
        }
    }
    lines = (tmp_path / "llama_factory" / "sft_query_train.jsonl").read_text().splitlines()
    assert len(lines) == table.num_rows
