"""Which rollouts make up a run, in chunks. Rollouts have names that never change, so that a plan can be gone on with."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from drag_ray.agent.rollout import RolloutTask, compute_rollout_id, compute_seed
from drag_ray.rollout.waves import Ended, choose_wave, group_by_question
from drag_ray.types import Question


class Chunk(NamedTuple):
    """Tasks that an engine takes at once, and what is known of those that have ended (`waves.Ended`)."""

    number: int
    tasks: list[RolloutTask]
    ended: dict[str, frozenset[str] | None]


def build_plan(
    questions: Sequence[Question],
    presets: Sequence[str],
    samples_per_question: int,
    run_seed: int,
    hinted_samples: int = 0,
) -> list[RolloutTask]:
    """Every rollout that a run may need. Those of a question follow each other: they share its prompt in the engine's cache.

    The hinted ones of a question come last and take the presets in turn; `choose_wave` says whether they are needed.
    """
    draws = [(preset, index, False) for preset in presets for index in range(samples_per_question)]
    draws += [(presets[index % len(presets)], index, True) for index in range(hinted_samples)]
    plan = []
    for question in questions:
        for preset, index, hinted in draws:
            if hinted and not question.evidence:
                continue  # there is no page to show
            seed = compute_seed(run_seed, compute_rollout_id(question.id, preset, index, hinted=hinted))
            plan.append(RolloutTask(question, index, preset, seed, hinted=hinted))
    return plan


def choose_pending(plan: Sequence[RolloutTask], ended: Ended, enough_successes: int = 0) -> list[RolloutTask]:
    """All rollouts of the questions that are not through, those that have ended among them: the next ones depend on them."""
    groups = (group for group in group_by_question(plan) if choose_wave(group, ended, enough_successes))
    return [task for group in groups for task in group]


def count_plan(plan: Sequence[RolloutTask], ended: Ended, pending: Sequence[RolloutTask]) -> dict[str, int]:
    """How many rollouts of a plan there are, and what became of them; the other counts add up to the first.

    Returns:
        rollouts (that the run may need), finished (without a hint), hinted (finished with one), set_aside (failed too often),
        unfinished (to be run, at most) and skipped (not needed).
    """
    finished = [task for task in plan if ended.get(task.id) is not None]
    counts = {
        "rollouts": len(plan),
        "finished": sum(not task.hinted for task in finished),
        "hinted": sum(task.hinted for task in finished),
        "set_aside": sum(task.id in ended for task in plan) - len(finished),
        "unfinished": sum(task.id not in ended for task in pending),
    }
    return counts | {"skipped": 2 * len(plan) - sum(counts.values())}


def cut_chunks(tasks: Sequence[RolloutTask], chunk_rollouts: int, ended: Ended | None = None) -> Iterator[Chunk]:
    """Chunks of `chunk_rollouts` tasks at most; a question stays whole, even if it has more."""
    number, chunk = 0, list[RolloutTask]()
    for group in group_by_question(tasks):
        if chunk and len(chunk) + len(group) > chunk_rollouts:
            yield _make_chunk(number, chunk, ended or {})
            number, chunk = number + 1, []
        chunk += group
    if chunk:
        yield _make_chunk(number, chunk, ended or {})


def _make_chunk(number: int, tasks: list[RolloutTask], ended: Ended) -> Chunk:
    return Chunk(number, tasks, {task.id: ended[task.id] for task in tasks if task.id in ended})


def count_in_flight(chunk_rollouts: int, concurrent_rollouts: int) -> int:
    """Chunks that an engine works on at most, and one more that waits for room.

    A chunk of n rollouts is in flight until the longest of them ends, for H_n = 1 + 1/2 + ... + 1/n times as long as one
    of them if their durations are exponential; so many more chunks keep the places full.

    Args:
        chunk_rollouts: rollouts that a chunk begins with.
        concurrent_rollouts: places of an engine.
    """
    stretch = sum(1 / place for place in range(1, chunk_rollouts + 1))
    return math.ceil(concurrent_rollouts / chunk_rollouts * stretch) + 1
