"""The tokens by which an engine is known to write with an adapter, and the types of numbers that are no sign of another one."""

import re
from pathlib import Path

import pytest

from drag_ray.engine.models.canary import Canary, read_canary
from drag_ray.errors import ArtifactError

POLICY, BEFORE, START = [-2.0, -1.0, -0.5, -3.0], [-2.1, -1.0, -0.4, -3.2], [-2.5, -1.4, -0.1, -3.9]
CANARY = Canary([1, 2, 3, 4, 5], POLICY, {"the policy of the step before": BEFORE, "the start": START})


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (POLICY, ""),
        ([-2.000001, -1.0, -0.499999, -3.0], ""),  # float32
        ([-2.06, -0.97, -0.53, -3.06], ""),  # bfloat16, further than the step has moved the policy
        ([-2.05, -1.0, -0.45, -3.1], ""),  # half-way
        (BEFORE, "0.1 nats a token from it, but 0 from the policy of the step before"),
        ([-2.1, -1.01, -0.4, -3.19], "0.1 nats a token from it, but 0.005 from the policy of the step before"),
        ([-2.46, -1.44, -0.12, -3.88], "0.54 nats a token from it, but 0.03 from the start"),
        ([-4.0, -1.0, -0.5, -9.0], "2 nats a token from it"),
    ],
)
def test_an_engine_differs_that_finds_what_an_older_policy_would(found: list[float], said: str) -> None:
    assert re.fullmatch(re.escape(said), CANARY.find_difference(found))


def test_a_policy_that_has_learned_nothing_differs_from_no_engine() -> None:
    same = Canary([1, 2, 3, 4, 5], POLICY, {"the policy of the step before": POLICY, "the start": POLICY})
    assert same.find_difference([-2.06, -0.97, -0.53, -3.06]) == ""


def test_a_canary_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_canary(tmp_path) is None
    CANARY.write(tmp_path)
    assert read_canary(tmp_path) == CANARY


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", "{}", '{"token_ids": [1, 2], "log_probabilities": 3, "others": {}}'),
        '{"token_ids": [1, 2, 3], "log_probabilities": [-1], "others": {}}',
        '{"token_ids": [1, 2], "log_probabilities": [-1], "others": {"the start": [-1, -2]}}',
        '{"token_ids": [1], "log_probabilities": [], "others": {}}',
    ],
)
def test_a_damaged_canary_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "canary.json").write_text(text)
    with pytest.raises(ArtifactError, match=re.escape(f"{tmp_path / 'canary.json'}: ")):
        read_canary(tmp_path)
