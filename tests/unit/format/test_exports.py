import json
from pathlib import Path
from typing import Any

import pytest
from factories import build_answer, build_search, build_trajectory

from drag_ray.format.config import FormatConfig
from drag_ray.format.exporter import ExportedRow, ExportFile, describe_files, load_exporter
from drag_ray.format.exports import EXPORTS, ExportName
from drag_ray.format.row_format import load_format
from drag_ray.format.rows import OF_TURNS, FormatName


def list_rows(name: FormatName, part) -> list[dict[str, Any]]:
    return load_format(name).build_rows(part, FormatConfig()).to_dicts()


def export(trainer: ExportName, name: FormatName, row: dict[str, Any]) -> list[ExportedRow]:
    return list(load_exporter(trainer).convert(load_format(name).to_example(row), row))  # type: ignore[arg-type]


@pytest.fixture
def part(process):
    return process(
        build_trajectory(build_search("wide"), build_search("third", 3), build_search("best", 1), build_answer()),
        build_trajectory(build_search("good", 2), sample_index=1),
    )


def test_each_learned_reply_of_a_conversation_ends_a_row_of_llama_factory(part) -> None:
    row = next(row for row in list_rows("sft_trajectory", part) if row["trajectory_id"] == "q1-0")
    first, second = export("llama_factory", "sft_trajectory", row)
    assert first["system"] == row["messages"][0]["content"]
    assert [turn["from"] for turn in first["conversations"]] == ["human", "gpt", "human", "gpt"]
    assert first["conversations"][-1]["value"] == "<search>third</search>"
    assert [turn["value"] for turn in second["conversations"]] == [message["content"] for message in row["messages"][1:]]


def test_llama_factory_reads_pairs_in_its_own_columns(part) -> None:
    pair = list_rows("dpo", part)[0]
    (exported,) = export("llama_factory", "dpo", pair)
    assert exported["conversations"] == [{"from": "human", "value": pair["prompt"][1]["content"]}]
    assert exported["chosen"] == {"from": "gpt", "value": "<search>good</search>"}
    assert exported["rejected"] == {"from": "gpt", "value": "<search>wide</search>"}
    for name in ("reward", "rl_steps"):
        assert export("llama_factory", name, list_rows(name, part)[0]) == []


def test_ms_swift_learns_the_marked_replies_alone_and_reads_other_formats_in_its_own_columns(part) -> None:
    row = next(row for row in list_rows("sft_trajectory", part) if row["trajectory_id"] == "q1-0")
    (exported,) = export("ms_swift", "sft_trajectory", row)
    assert [message.get("loss") for message in exported["messages"]] == [None, None, False, None, True, None, True]
    (context,) = export("ms_swift", "sft_context", list_rows("sft_context", part)[0])
    assert [message["loss"] for message in context["messages"] if message["role"] == "assistant"] == [False, True]
    (pair,) = export("ms_swift", "dpo", list_rows("dpo", part)[0])
    assert (pair["messages"][-1]["content"], pair["rejected_response"]) == ("<search>good</search>", "<search>wide</search>")
    assert export("ms_swift", "reward", list_rows("reward", part)[0])[0]["label"] == 0.0
    (step,) = export("ms_swift", "rl_steps", list_rows("rl_steps", part)[0])
    assert [message["role"] for message in step["messages"]] == ["system", "user"]
    assert (step["recorded_reply"], step["reward"]) == ("<search>wide</search>", 0.0)


def test_images_and_functions_go_along_and_a_row_that_ends_early_names_only_what_it_shows() -> None:
    parts = [{"type": "text", "text": "Page "}, {"type": "image", "text": None}]
    row = {
        "prompt": [{"role": "user", "content": parts}],
        "completion": [{"role": "assistant", "content": [{"type": "text", "text": "<search>a</search>"}]}],
        "images": ["ab.png"],
        "tools": "[]",
    }
    (theirs,) = export("llama_factory", "sft_context", row)
    assert theirs["conversations"][0] == {"from": "human", "value": "Page <image>"}
    assert (theirs["images"], theirs["tools"]) == (["ab.png"], "[]")
    (swift,) = export("ms_swift", "sft_context", row)
    assert (swift["messages"][0]["content"], swift["images"], swift["tools"]) == ("Page <image>", ["ab.png"], "[]")
    image = {"role": "user", "content": [{"type": "image", "text": None}]}
    reply = {"role": "assistant", "content": [{"type": "text", "text": "<search>a</search>"}]}
    row = {
        "messages": [image, reply, image, image, reply],
        "num_prompt_messages": 1,
        "train_turns": [True, True],
        "images": ["1.png", "2.png", "3.png"],
    }
    exported = export("llama_factory", "sft_trajectory", row)
    assert [row["images"] for row in exported] == [["1.png"], ["1.png", "2.png", "3.png"]]


def test_llama_factory_is_told_of_the_files_that_have_rows_and_of_the_columns_in_them(part, tmp_path: Path) -> None:
    files = []
    for name in OF_TURNS:
        table = load_format(name).build_rows(part, FormatConfig()).to_arrow()
        with ExportFile(tmp_path, "llama_factory", name, "train") as file:
            file.write(table)
        files.append(file)
    for trainer in EXPORTS:
        describe_files(tmp_path, trainer, files)
    assert not (tmp_path / "ms_swift").exists()
    described = json.loads((tmp_path / "llama_factory" / "dataset_info.json").read_text())
    assert list(described) == [f"{name}_train" for name in OF_TURNS if name not in ("reward", "rl_steps")]
    assert described["dpo_train"] == {
        "file_name": "dpo_train.jsonl",
        "formatting": "sharegpt",
        "ranking": True,
        "columns": {"messages": "conversations", "system": "system", "chosen": "chosen", "rejected": "rejected"},
    }
    for entry in described.values():
        lines = (tmp_path / "llama_factory" / entry["file_name"]).read_text().splitlines()
        assert {column for line in lines for column in json.loads(line)} == set(entry["columns"].values())
