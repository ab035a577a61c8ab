"""Rate limiter of an endpoint: requests and tokens a minute, and Retry-After."""

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any

import httpx2

from drag_ray.engine.endpoints.bounded_client import BoundedClient

_MAX_PAUSE_S = 120.0
"""as long as the `openai` client waits for a refused request"""
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_UNIT_S = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


class RateLimit:
    """Spreads requests over time, repeated ones too. For one event loop.

    A reply's tokens are known when it is there: those of replies under way come on top.

    Args:
        requests_per_minute: 0 for any number.
        tokens_per_minute: read and written; 0 for any number.
    """

    def __init__(self, requests_per_minute: float, tokens_per_minute: float) -> None:
        self._request_s = 60 / requests_per_minute if requests_per_minute else 0.0
        self._token_s = 60 / tokens_per_minute if tokens_per_minute else 0.0
        self._next_at = self._tokens_paid_at = self._paused_until = 0.0
        self._turn = asyncio.Lock()

    async def wait(self) -> None:
        """Return when the next request may begin. In the order in which they come."""
        async with self._turn:
            while (delay_s := max(self._next_at, self._tokens_paid_at, self._paused_until) - time.monotonic()) > 0:
                await asyncio.sleep(delay_s)
            self._next_at = time.monotonic() + self._request_s

    def spend(self, num_tokens: int) -> None:
        """Count the tokens of a reply."""
        self._tokens_paid_at = max(self._tokens_paid_at, time.monotonic()) + num_tokens * self._token_s

    def note(self, response: Any) -> None:
        """Let all requests wait as long as a response says that no more are taken: `Retry-After` of a 429, and OpenAI's
        `x-ratelimit-reset-*` where nothing remains. The client itself has only the refused request wait."""
        pause_s = read_pause(response.status_code, response.headers)
        self._paused_until = max(self._paused_until, time.monotonic() + min(pause_s, _MAX_PAUSE_S))


def read_pause(status: int, headers: Mapping[str, str]) -> float:
    """Seconds for which the endpoint wants no more requests; 0 where it does not say."""
    said = [headers.get("retry-after", "")] if status == 429 else []
    used_up = [what for what in ("requests", "tokens") if headers.get(f"x-ratelimit-remaining-{what}") == "0"]
    said += [headers.get(f"x-ratelimit-reset-{what}", "") for what in used_up]
    return max(map(_read_seconds, said), default=0.0)


def _read_seconds(text: str) -> float:
    """Seconds of `1.5`, `20ms` or `6m0s`; 0 for anything else, such as a date."""
    parts = [(float(number), unit) for number, unit in _DURATION_PART.findall(text)]
    is_duration = bool(parts) and not _DURATION_PART.sub("", text).strip()
    return sum(number * _UNIT_S[unit] for number, unit in parts) if is_duration else 0.0


class RatedClient(BoundedClient):
    """A client whose requests, retries too, wait for their turn, which does not count towards their timeout."""

    def __init__(self, rate_limit: RateLimit, max_bytes: int, timeout_s: float) -> None:
        super().__init__(max_bytes, timeout_s, limits=httpx2.Limits())  # requests under way are limited before they come here
        self._rate_limit = rate_limit

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request, as `BoundedClient` does."""
        await self._rate_limit.wait()
        response = await super().send(request, **options)
        self._rate_limit.note(response)
        return response
