"""Where a worker says what it does while it does it."""

from collections.abc import Mapping, Sequence
from typing import Protocol


class Recorder(Protocol):
    """Takes the counts and the load of a worker."""

    def add_chunk(self, counts: Mapping[str, int], durations_s: Sequence[float]) -> None:
        """Add what the rollouts of a chunk came to: see `counts`, and the seconds that each of them took."""
        ...

    def set_load(self, num_running: int, num_waiting: int) -> None:
        """Note how many rollouts the engine works on, and how many wait for a place."""
        ...


class NoRecorder:
    """Forgets everything."""

    def add_chunk(self, counts: Mapping[str, int], durations_s: Sequence[float]) -> None: ...

    def set_load(self, num_running: int, num_waiting: int) -> None: ...
