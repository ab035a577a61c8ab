"""Requests that are spread over time or wait for an endpoint, and what replies cost, also after a full disk."""

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from file_layer import limit_files

from drag_ray.engine.config import EndpointConfig
from drag_ray.engine.endpoints.rate_limit import RateLimit, read_pause
from drag_ray.engine.endpoints.spending import Spending
from drag_ray.engine.generate import Usage
from drag_ray.errors import ArtifactError, BudgetError


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"retry-after": "2"}, 2),
        (503, {"retry-after": "2"}, 0),  # that another engine starts is no limit
        (429, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, 0),
        (429, {}, 0),
        (200, {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0.5s"}, 360.5),
        (200, {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"}, 0.02),
        (200, {"x-ratelimit-remaining-tokens": "1", "x-ratelimit-reset-tokens": "20ms"}, 0),
        (200, {"x-ratelimit-remaining-tokens": "0"}, 0),
    ],
)
def test_a_pause_is_what_the_endpoint_says(status: int, headers: dict[str, str], seconds: float) -> None:
    assert read_pause(status, headers) == pytest.approx(seconds)


def test_all_requests_wait_for_the_end_of_a_pause() -> None:
    async def wait_after_a_refusal() -> float:
        limit = RateLimit(0, 0)
        limit.note(SimpleNamespace(status_code=429, headers={"retry-after": "0.1"}))
        began = time.monotonic()
        await asyncio.gather(limit.wait(), limit.wait())
        return time.monotonic() - began

    assert asyncio.run(wait_after_a_refusal()) >= 0.1


TERMS = EndpointConfig(address="http://127.0.0.1:1/v1", prompt_price=1.0, completion_price=2.0, budget=1.0)
REPLY = Usage(num_prompt_tokens=1_000_000, num_completion_tokens=0)


def test_a_half_written_line_is_an_error_and_named_later(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "spending.jsonl"
    spending = Spending(path, TERMS)
    spending.add(REPLY)
    cost = spending.compute_cost()
    refused = r"spending\.jsonl: cannot be written \(No space left on device\)"
    with limit_files(path.stat().st_size + 10), pytest.raises(ArtifactError, match=refused):
        spending.add(REPLY)
    assert spending.compute_cost() == cost > 0
    spending.add(REPLY)  # on the half line
    spending.add(REPLY)
    assert spending.compute_cost() == 2 * cost
    assert f"{path}: line 2 is skipped" in caplog.text


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
    assert caplog.text.count(f"{path}: line 2 is skipped") == 1
    with path.open("ab") as stream:
        stream.write(line + b"\n")
    assert spending.compute_cost() == 1
    assert caplog.text.count(f"{path}: line 4 is skipped") == 1
