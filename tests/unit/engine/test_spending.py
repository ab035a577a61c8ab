"""What replies cost is known after a full disk, or said not to be."""

import resource
from pathlib import Path

import pytest

from drag_ray.engine.config import EndpointConfig
from drag_ray.engine.endpoints.spending import Spending
from drag_ray.engine.generate import Usage
from drag_ray.errors import ArtifactError, BudgetError

TERMS = EndpointConfig(address="http://127.0.0.1:1/v1", prompt_price=1.0, completion_price=2.0, budget=1.0)
REPLY = Usage(num_prompt_tokens=1_000_000, num_completion_tokens=0)


def test_a_reply_of_which_half_a_line_was_written_is_an_error_and_the_line_is_named_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "spending.jsonl"
    spending = Spending(path, TERMS)
    spending.add(REPLY)
    cost = spending.compute_cost()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, limits[1]))
    try:
        with pytest.raises(ArtifactError, match=r"spending\.jsonl: cannot be written \(No space left on device\)"):
            spending.add(REPLY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert spending.compute_cost() == cost > 0
    spending.add(REPLY)  # on the half line
    spending.add(REPLY)
    assert spending.compute_cost() == 2 * cost
    assert f"{path}: line 2 is passed over" in caplog.text


@pytest.mark.parametrize(
    "line",
    [
        b'{"prompt_tokens": null, "completion_tokens": 1}',
        b'{"prompt_tokens": -5, "completion_tokens": 1}',
        b'{"prompt_tokens": NaN, "completion_tokens": 1}',
        b'{"prompt_tokens": 1e300, "completion_tokens": 1}',
        b'{"prompt_tokens": "7", "completion_tokens": 1}',
        b'{"prompt_tokens": true, "completion_tokens": 1}',
        b"[null]",
        b"{",
        b"\xff\x00",
        b"",
        b"[" * 100_000,
    ],
)
def test_a_stage_that_once_noted_nonsense_goes_on_and_the_line_is_named(
    line: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "spending.jsonl"
    reply = b'{"prompt_tokens": 500000, "completion_tokens": 0}\n'
    path.write_bytes(reply + line + b"\n" + reply)
    spending = Spending(path, TERMS)
    with pytest.raises(BudgetError, match="have cost 1, and the budget is 1"):
        spending.check()
    assert caplog.text.count(f"{path}: line 2 is passed over") == 1
    with path.open("ab") as stream:
        stream.write(line + b"\n")
    assert spending.compute_cost() == 1
    assert caplog.text.count(f"{path}: line 4 is passed over") == 1
