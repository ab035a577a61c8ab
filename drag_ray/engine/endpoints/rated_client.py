"""The HTTP client of an endpoint that keeps to its rate limit; by itself, since `rate_limit` is read without an HTTP library."""

from typing import Any

import httpx2

from drag_ray.engine.endpoints.bounded_client import BoundedClient
from drag_ray.engine.endpoints.rate_limit import RateLimit


class RatedClient(BoundedClient):
    """A client whose requests, retries too, wait for their turn, which does not count towards their timeout.

    Args:
        rate_limit: gives the turns, and is shown each answer.
        max_bytes: see `BoundedClient`.
        timeout_s: likewise.
    """

    def __init__(self, rate_limit: RateLimit, max_bytes: int, timeout_s: float) -> None:
        super().__init__(max_bytes, timeout_s, limits=httpx2.Limits())  # requests under way are limited before they come here
        self._rate_limit = rate_limit

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request, as `BoundedClient` does."""
        await self._rate_limit.wait()
        response = await super().send(request, **options)
        self._rate_limit.note(response)
        return response
