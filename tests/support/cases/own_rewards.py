"""Rewards as a user of the package writes them: good ones, and some that cannot be used."""

from collections.abc import Sequence
from typing import Any

from drag_ray.process.reward_function import Rollout

REWARDED: list[Rollout] = []
"""What `keep` was given."""
number = 3


def reward_letters(rollout: Rollout) -> list[float]:
    """The share of letters in each reply."""
    return [sum(letter.isalpha() for letter in reply.text) / max(1, len(reply.text)) for reply in rollout.replies]


def reward_last_rank(rollout: Rollout) -> Sequence[float]:
    """A number for a rollout, on its last reply."""
    ranks = [reply.rank for reply in rollout.replies if reply.rank]
    return [*[0.0] * (len(rollout.replies) - 1), 1 / min(ranks) if ranks else 0.0]


def keep(rollout: Rollout) -> list[float]:
    """Nothing for anything, so that what was given can be looked at."""
    REWARDED.append(rollout)
    return [0.0] * len(rollout.replies)


def take_two(rollout: Rollout, other: Rollout) -> list[float]:
    return [0.0]


async def wait(rollout: Rollout) -> list[float]:
    return [0.0]


def fail(rollout: Rollout) -> list[float]:
    return [1 / (len(rollout.replies) - 2)]


def give_none(rollout: Rollout) -> Any:
    return None


def give_number(rollout: Rollout) -> Any:
    return 0.5


def give_text(rollout: Rollout) -> Any:
    return "12"


def give_texts(rollout: Rollout) -> Any:
    return ["1", "2"]


def give_too_few(rollout: Rollout) -> Any:
    return [1.0]


def give_nan(rollout: Rollout) -> Any:
    return [0.0, float("nan")]


def give_infinity(rollout: Rollout) -> Any:
    return [float("-inf"), 0.0]


def give_nothing_for_one(rollout: Rollout) -> Any:
    return [0.0, None]


def give_by_step(rollout: Rollout) -> Any:
    return {1: 0.5, 2: 0.7}


def give_too_large(rollout: Rollout) -> Any:
    return [10**400, 0]


def never_return(rollout: Rollout) -> Any:
    while True:
        pass


def leave(rollout: Rollout) -> Any:
    raise SystemExit(0)
