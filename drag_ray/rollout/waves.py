"""Which rollouts of a question run next: wave after wave until enough of them succeeded, and with a hint where none did."""

from collections.abc import Mapping, Sequence
from itertools import groupby

from drag_ray.agent.action import collapse_spaces
from drag_ray.agent.rollout import RolloutTask
from drag_ray.types import Trajectory

Ended = Mapping[str, frozenset[str] | None]
"""The distinct successful queries of each rollout that has ended, by its id; None if it failed and is not tried again."""


def choose_wave(tasks: Sequence[RolloutTask], ended: Ended, enough_successes: int = 0) -> list[RolloutTask]:
    """The rollouts of a question that run next, at the same time; none when the question is through.

    Samples are taken in the order of the plan, and with `enough_successes` no more of them at a time than successes are
    missing. Which samples a question gets thus follows from what the earlier ones found, and not from timing: a run that
    was killed and goes on comes to the same end. A sample that failed for good counts as one without a success.
    Hinted rollouts run when all samples have finished and none of them succeeded.

    Args:
        tasks: all rollouts of one question, in the order of the plan.
        ended: what is known of rollouts that have ended, of any question.
        enough_successes: distinct successful queries after which no further sample is begun; 0 begins all samples at once.
    """
    samples = [task for task in tasks if not task.hinted]
    found: set[str] = set()
    start = 0
    while start < len(samples) and not (enough_successes and len(found) >= enough_successes):
        stop = start + enough_successes - len(found) if enough_successes else len(samples)
        wave = samples[start:stop]
        missing = [task for task in wave if task.id not in ended]
        if missing:
            return missing
        found.update(*(ended[task.id] or () for task in wave))
        start = stop
    if found or any(ended.get(task.id) is None for task in samples):
        return []
    return [task for task in tasks if task.hinted and task.id not in ended]


def group_by_question(tasks: Sequence[RolloutTask]) -> list[list[RolloutTask]]:
    """Neighbouring rollouts of the same question together."""
    return [list(group) for _, group in groupby(tasks, key=lambda task: task.question.id)]


def list_successes(trajectory: Trajectory) -> frozenset[str] | None:
    """The distinct queries of a rollout that found evidence within top_k, as `process` tells them apart; None if it failed."""
    if trajectory.error:
        return None
    return frozenset(collapse_spaces(turn.query) for turn in trajectory.turns if turn.rank_score > 0)
