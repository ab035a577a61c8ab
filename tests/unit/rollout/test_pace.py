"""The pace of a run: told when there is enough to tell it from, and of late."""

import pytest

from drag_ray.rollout.pace import Pace, Rates


def note_steadily(pace: Pace, start_s: int, num_steps: int, step_s: int, size: int, num_before: int = 0) -> int:
    """Note `size` rollouts of 50 tokens every `step_s` seconds from `start_s` on; returns how many there are then."""
    for step in range(num_steps):
        num_rollouts = num_before + (step + 1) * size
        pace.note(start_s + step * step_s, num_rollouts, 50 * num_rollouts)
    return num_before + num_steps * size


def test_nothing_is_told_of_nothing() -> None:
    assert Pace().compute_rates() is None


@pytest.mark.parametrize(
    ("num_steps", "step_s", "size", "is_told"),
    [
        (5, 30, 7, False),  # 28 rollouts after the first end
        (6, 30, 7, True),
        (40, 1, 8, True),
        (10, 1, 100, False),  # a burst of 9 seconds
        (11, 1, 100, True),
    ],
)
def test_a_pace_needs_some_tens_of_rollouts_and_some_seconds(num_steps: int, step_s: int, size: int, is_told: bool) -> None:
    pace = Pace()
    note_steadily(pace, 0, num_steps, step_s, size)
    assert pace.compute_rates() == (Rates(size / step_s, 50 * size / step_s) if is_told else None)


def test_the_start_of_the_engines_is_no_part_of_it() -> None:
    pace = Pace()
    note_steadily(pace, start_s=3600, num_steps=20, step_s=1, size=4)
    assert pace.compute_rates() == Rates(4, 200)


def test_a_fast_run_is_told_by_its_last_minute() -> None:
    pace = Pace()
    num_rollouts = note_steadily(pace, 0, num_steps=100, step_s=1, size=10)
    note_steadily(pace, 100, num_steps=61, step_s=1, size=2, num_before=num_rollouts)
    assert pace.compute_rates() == Rates(2, 100)


def test_a_slow_run_is_told_by_its_last_rollouts() -> None:
    pace = Pace()
    num_rollouts = note_steadily(pace, 0, num_steps=100, step_s=1, size=10)
    note_steadily(pace, 200, num_steps=31, step_s=100, size=1, num_before=num_rollouts)
    assert pace.compute_rates() == Rates(0.01, 0.5)
