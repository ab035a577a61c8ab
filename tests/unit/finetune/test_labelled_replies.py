"""Wanted and unwanted replies on their way into KTO."""

import pytest
from pydantic import ValidationError

from drag_ray.finetune.collator import LabelledCollator
from drag_ray.finetune.config import FinetuneConfig
from drag_ray.finetune.methods import balance


def test_beside_each_reply_stands_its_prompt_with_the_reply_before() -> None:
    rows = [
        {"input_ids": [1, 2, 3], "labels": [-100, -100, 3], "is_wanted": True, "image_keys": []},
        {"input_ids": [4, 5, 6], "labels": [-100, 5, 6], "is_wanted": False, "image_keys": []},
    ]
    batch = {name: tensor.tolist() for name, tensor in LabelledCollator(0)(rows).items()}
    assert batch == {
        "input_ids": [[1, 2, 3], [4, 5, 6]],
        "attention_mask": [[1, 1, 1], [1, 1, 1]],
        "completion_mask": [[0, 0, 1], [0, 1, 1]],
        "KL_input_ids": [[1, 2, 5, 6], [4, 3, 0, 0]],
        "KL_attention_mask": [[1, 1, 1, 1], [1, 1, 0, 0]],
        "KL_completion_mask": [[0, 0, 1, 1], [0, 1, 0, 0]],
        "label": [True, False],
    }


@pytest.mark.parametrize(
    ("num_wanted", "num_unwanted", "weights"), [(2, 6, (3, 1)), (6, 2, (1, 3)), (4, 4, (1, 1)), (0, 5, (1, 1)), (5, 0, (1, 1))]
)
def test_the_rarer_kind_counts_more(num_wanted: int, num_unwanted: int, weights: tuple[int, int]) -> None:
    assert balance([True] * num_wanted + [False] * num_unwanted) == weights


def test_a_batch_of_one_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"batch_size 1: kto pairs .* Set batch_size to 2 or more"):
        FinetuneConfig(format="kto", batch_size=1)
