"""The columns of each format, against those that readers of the files know, and the files themselves."""

import io
import json
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drag_ray.format.columns import MESSAGES, MESSAGES_WITH_IMAGES
from drag_ray.format.row_format import load_format
from drag_ray.format.row_parts import RowFiles, encode_rows
from drag_ray.format.rows import FormatName

ORIGIN = {"question_id": pa.string(), "trajectory_id": pa.string()}
DIGEST = {"prompt_digest": pa.string()}
REPLY = {"prompt": MESSAGES, "completion": MESSAGES, **ORIGIN, "score": pa.float64(), "weight": pa.float64(), **DIGEST}
CONVERSATION = {
    **{"messages": MESSAGES, "num_prompt_messages": pa.int32(), "train_turns": pa.list_(pa.bool_())},
    **ORIGIN,
    **{"score": pa.float64(), "weight": pa.float64(), "prompt_digests": pa.list_(pa.string())},
}


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("sft_query", REPLY),
        ("sft_context", REPLY),
        ("sft_trajectory", CONVERSATION),
        ("rejection", CONVERSATION),
        (
            "dpo",
            {
                **{"prompt": MESSAGES, "chosen": MESSAGES, "rejected": MESSAGES},
                **ORIGIN,
                **{"chosen_score": pa.float64(), "rejected_score": pa.float64(), **DIGEST},
            },
        ),
        (
            "reward",
            {
                **{"prompt": MESSAGES, "completion": MESSAGES},
                **ORIGIN,
                **{"baseline": pa.string(), "query": pa.string(), "score": pa.float64(), **DIGEST},
            },
        ),
        (
            "rl_steps",
            {
                **{"prompt": MESSAGES, "completion": MESSAGES},
                **ORIGIN,
                **{"step": pa.int32(), "num_steps": pa.int32()},
                **dict.fromkeys(("reward", "trajectory_reward", "advantage", "temperature"), pa.float64()),
                **{"completion_token_ids": pa.list_(pa.int32()), "completion_logprobs": pa.list_(pa.float64())},
                **DIGEST,
            },
        ),
    ],
)
def test_the_columns_of_a_format_are_those_that_trainers_read(name: FormatName, columns: dict[str, pa.DataType]) -> None:
    assert load_format(name).schema == pa.schema(list(columns.items()))


SCHEMA = pa.schema(
    [
        *(("prompt", MESSAGES), ("messages", MESSAGES_WITH_IMAGES), ("images", pa.list_(pa.string())), ("tools", pa.string())),
        *(("score", pa.float64()), ("step", pa.int32()), ("label", pa.bool_()), ("train_turns", pa.list_(pa.bool_()))),
    ]
)
PARTS = [{"type": "text", "text": "look: "}, {"type": "image", "text": None}]
ROWS = [
    {
        "prompt": [{"role": "user", "content": 'a "quote" \\ and\n\ttwo lines, \x00 \x1f \x7f, é \u2028 \U0001f600 </s> /'}],
        "messages": [{"role": "user", "content": PARTS}, {"role": "assistant", "content": []}],
        **{"images": ["a#1", "b#2"], "tools": None, "score": 1 / 3, "step": 3, "label": True, "train_turns": [True, False]},
    },
    {
        **{"prompt": [], "messages": [], "images": [], "tools": '{"name": "search"}', "score": 1e-7, "step": 0, "label": False},
        "train_turns": [],
    },
]


def build_table(rows: list[dict[str, object]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def test_lines_hold_the_rows_word_for_word_and_are_those_of_polars() -> None:
    lines = encode_rows(build_table(ROWS)).lines.to_pybytes()
    assert lines.endswith(b"\n")
    assert [json.loads(line) for line in lines.removesuffix(b"\n").split(b"\n")] == ROWS
    expected = io.BytesIO()
    frame = pl.from_arrow(build_table(ROWS))
    assert isinstance(frame, pl.DataFrame)
    frame.write_ndjson(expected)
    assert encode_rows(build_table(ROWS)).lines.to_pybytes() == expected.getvalue()


def test_both_files_hold_the_rows_of_all_parts_in_order(tmp_path: Path) -> None:
    files = RowFiles(tmp_path, "train", SCHEMA)
    with files:
        for name, rows in (("first", ROWS), ("empty", []), ("last", ROWS[1:])):
            files.write(encode_rows(build_table(rows)), name)
    assert files.parts == {"first": range(2), "last": range(2, 3)}
    assert files.num_rows == 3
    written = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert written == [*ROWS, ROWS[1]]
    assert [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().split("\n")[:-1]] == written


def write_until_it_fails(folder: Path) -> None:
    with RowFiles(folder, "train", SCHEMA) as files:
        files.write(encode_rows(build_table(ROWS)), "first")
        files.write(encode_rows(build_table(ROWS).select(["score"])), "of other columns")


def test_neither_file_is_there_after_a_failure(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="schema does not match"):
        write_until_it_fails(tmp_path)
    assert not list(tmp_path.iterdir())
