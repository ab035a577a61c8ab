"""The plan of a run's rollouts, and which of a question run next: adaptive sampling, by what its earlier ones found.

Rollouts have names that never change, so that a plan can be gone on with.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from drag_ray.agent.answers import RIGHT_ANLS, compute_anls
from drag_ray.agent.protocols import collapse_spaces
from drag_ray.agent.task import RolloutTask, compute_rollout_id, compute_seed
from drag_ray.agent.tasks import ANSWERING
from drag_ray.types import Question, Trajectory

Successes = frozenset[str] | None
"""The distinct queries of a rollout that won (see `list_successes`); None if it failed and is not tried again."""
Ended = Mapping[str, Successes]
"""What came of the rollouts that have ended, by their ids."""


class RolloutDraw(NamedTuple):
    """The rollouts that are drawn for every question: see `RolloutTask`."""

    preset: str
    sample_index: int
    baseline: str = ""
    hinted: bool = False
    prompt_set: int = 0


class Chunk(NamedTuple):
    """Tasks that an engine takes at once, and what came of those that have ended."""

    number: int
    tasks: list[RolloutTask]
    ended: dict[str, Successes]


def build_plan(
    questions: Sequence[Question],
    presets: Sequence[str],
    samples_per_question: int,
    run_seed: int,
    hinted_samples: int = 0,
    num_prompt_sets: int = 0,
    proposals: Mapping[str, int] | None = None,
) -> list[RolloutTask]:
    """Every rollout that a run may need. Those of a question follow each other: they share its prompt in the engine's cache.

    The samples take the agent's own opening and `num_prompt_sets` others in turn. The hinted ones of a question come last and
    take the presets in turn; `choose_next` says whether they are needed. `proposals`: how many rollouts of a question are a
    baseline's, by its name.
    """
    draws = [
        RolloutDraw(preset, index, prompt_set=index % (num_prompt_sets + 1))
        for preset in presets
        for index in range(samples_per_question)
    ]
    draws += [
        RolloutDraw(presets[0], index, baseline=name) for name, count in (proposals or {}).items() for index in range(count)
    ]
    draws += [RolloutDraw(presets[index % len(presets)], index, hinted=True) for index in range(hinted_samples)]
    plan = []
    for question in questions:
        for draw in draws:
            if draw.hinted and not question.evidence:
                continue  # there is no page to show
            rollout_id = compute_rollout_id(question.id, draw.preset, draw.sample_index, draw.baseline, draw.hinted)
            seed = compute_seed(run_seed, rollout_id)
            plan.append(RolloutTask(question, draw.sample_index, draw.preset, seed, draw.baseline, draw.hinted, draw.prompt_set))
    return plan


def choose_next(tasks: Sequence[RolloutTask], ended: Ended, enough_successes: int = 0) -> list[RolloutTask]:
    """The rollouts of a question that run next, at the same time; none when the question is through.

    Those of baselines run with the first ones. Samples are taken in the order of the plan, and with `enough_successes` no more of
    them at a time than successes are missing. Which samples a question gets thus follows from what the earlier ones found, and
    not from timing: a run that was killed and goes on comes to the same end. A sample that failed for good counts as one without
    a success. Hinted rollouts run when all samples have finished and neither they nor a baseline succeeded.

    Args:
        tasks: all rollouts of one question, in the order of the plan.
        ended: may hold rollouts of other questions too.
        enough_successes: distinct successful queries after which no further sample is begun; 0 begins all samples at once.
    """
    proposals = [task for task in tasks if task.baseline]
    due = [task for task in proposals if task.id not in ended]
    samples = [task for task in tasks if not task.hinted and not task.baseline]
    found: set[str] = set()
    start = 0
    while start < len(samples) and not (enough_successes and len(found) >= enough_successes):
        stop = start + enough_successes - len(found) if enough_successes else len(samples)
        chosen = samples[start:stop]
        missing = [task for task in chosen if task.id not in ended]
        if missing:
            return missing + due
        found.update(*(ended[task.id] or () for task in chosen))
        start = stop
    proposed = any(ended.get(task.id) for task in proposals)
    if due or found or proposed or any(ended.get(task.id) is None for task in samples):
        return due
    return [task for task in tasks if task.hinted and task.id not in ended]


def choose_pending(plan: Sequence[RolloutTask], ended: Ended, enough_successes: int = 0) -> list[RolloutTask]:
    """All rollouts of the questions that are not through, those that have ended among them: the next ones depend on them."""
    groups = (group for group in group_by_question(plan) if choose_next(group, ended, enough_successes))
    return [task for group in groups for task in group]


def count_plan(plan: Sequence[RolloutTask], ended: Ended, pending: Sequence[RolloutTask]) -> dict[str, int]:
    """Counts of a plan's rollouts, and of what became of them; the other counts add up to the first. Returns rollouts (that the
    run may need), finished (without a hint), hinted (finished with one), set_aside (failed too often), unfinished (to be run, at
    most) and skipped (not needed)."""
    finished = [task for task in plan if ended.get(task.id) is not None]
    counts = {
        "rollouts": len(plan),
        "finished": sum(not task.hinted for task in finished),
        "hinted": sum(task.hinted for task in finished),
        "set_aside": sum(task.id in ended for task in plan) - len(finished),
        "unfinished": sum(task.id not in ended for task in pending),
    }
    return counts | {"skipped": 2 * len(plan) - sum(counts.values())}


def list_successes(trajectory: Trajectory) -> Successes:
    """The successes of a rollout, whose queries are told apart as `process` does: those that won.

    A query wins that finds evidence at a better rank than the question itself, or at the first as well. Where the question was
    not searched it wins with evidence within top_k. In the task `answer` it is the right answer that wins.
    """
    if trajectory.error:
        return None
    if trajectory.task in ANSWERING:
        is_right = compute_anls(trajectory.final_answer.text, trajectory.answers) >= RIGHT_ANLS
        return frozenset([collapse_spaces(trajectory.final_answer.text)] if is_right else [])
    bar = find_bar(trajectory.top_k, bool(trajectory.question_search.hits), trajectory.question_search.rank)
    return pick_wins(((turn.query, turn.ranking.evidence_rank) for turn in trajectory.turns), bar)


def find_bar(top_k: int, has_hits: bool, question_rank: int | None) -> float:
    """The worst rank of the evidence that is a win beside what the question itself finds (`has_hits`: anything at all)."""
    if not has_hits:
        return top_k
    return max(1, question_rank - 1) if question_rank else float("inf")


def pick_wins(searches: Iterable[tuple[str, int | None]], bar: float) -> frozenset[str]:
    """The distinct queries of searches, each a query with the rank of the evidence, that rank it no worse than `bar`."""
    return frozenset(collapse_spaces(query) for query, rank in searches if rank is not None and rank <= bar)


def group_by_question(tasks: Sequence[RolloutTask]) -> list[list[RolloutTask]]:
    """Neighbouring rollouts of the same question together."""
    return [list(group) for _, group in groupby(tasks, key=lambda task: task.question.id)]


def cut_chunks(tasks: Sequence[RolloutTask], chunk_rollouts: int, ended: Ended = MappingProxyType({})) -> list[Chunk]:
    """Chunks of `chunk_rollouts` tasks at most; a question stays whole, even if it has more."""
    chunks: list[list[RolloutTask]] = []
    for group in group_by_question(tasks):
        if not chunks or len(chunks[-1]) + len(group) > chunk_rollouts:
            chunks.append([])
        chunks[-1] += group
    return [
        Chunk(number, cut, {task.id: ended[task.id] for task in cut if task.id in ended}) for number, cut in enumerate(chunks)
    ]


def count_chunks_at_once(chunk_rollouts: int, concurrent_rollouts: int, share: float) -> int:
    """Chunks that an engine is given at most before one of them is through: so many that its slots stay full, or its share.

    A chunk of n rollouts is worked on until the longest of them ends, for H_n = 1 + 1/2 + ... + 1/n times as long as one
    of them if their durations are exponential; so many more chunks keep the slots full, and one follows. At first, some wait.

    Args:
        chunk_rollouts: rollouts that a chunk begins with.
        concurrent_rollouts: slots of an engine.
        share: chunks of an engine if all take as many, so that those that start first leave the others theirs.
    """
    stretch = sum(1 / slot for slot in range(1, chunk_rollouts + 1))
    return min(math.ceil(share), math.ceil(concurrent_rollouts / chunk_rollouts * stretch) + 1)
