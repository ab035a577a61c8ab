"""Requests that are spread over time, and wait while an endpoint wants none."""

import asyncio
import time
from types import SimpleNamespace

import pytest

from drag_ray.engine.endpoints.rate_limit import RateLimit, read_pause


async def time_requests(limit: RateLimit, number: int, num_tokens: int = 0) -> float:
    began = time.monotonic()
    for _ in range(number):
        await limit.wait()
        limit.spend(num_tokens)
    return time.monotonic() - began


def test_requests_and_tokens_are_spread_over_the_minute() -> None:
    assert asyncio.run(time_requests(RateLimit(0, 0), 100, 10**9)) < 0.05
    assert asyncio.run(time_requests(RateLimit(1200, 0), 3, 10**9)) >= 0.1
    assert asyncio.run(time_requests(RateLimit(0, 60_000), 3, 50)) >= 0.1


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
