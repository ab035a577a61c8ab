"""The schemas that follow from the types of the rows, against those that readers of the files know."""

import pyarrow as pa
import pytest

from drag_ray.format.columns import MESSAGES
from drag_ray.format.row_format import load_format
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
def test_the_columns_of_a_format_are_in_their_order_of_the_types_that_trainers_read(
    name: FormatName, columns: dict[str, pa.DataType]
) -> None:
    assert load_format(name).schema == pa.schema(list(columns.items()))
