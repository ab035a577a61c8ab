"""Which rollouts make up a run, in chunks. Rollouts have names that never change, so that a plan can be gone on with."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from drag_ray import schemas
from drag_ray.agent.rollout import RolloutTask, compute_rollout_id, compute_seed
from drag_ray.collect.waves import Ended, choose_wave, group_by_question
from drag_ray.types import Question

_DRAW_FIELDS = {
    "sample_index": pa.int32(),
    "preset": pa.string(),
    "seed": pa.int64(),
    "baseline": pa.string(),
    "hinted": pa.bool_(),
}
_TASK_SCHEMA = pa.schema(
    [("chunk", pa.int64()), *((f"question.{field.name}", field.type) for field in schemas.QUESTIONS)]
    + [*_DRAW_FIELDS.items(), ("ended", pa.bool_()), ("successes", pa.list_(pa.string()))]
)
"""`ended` and `successes` are what is known of a rollout, see `waves.Ended`."""


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


def cut_chunks(tasks: Sequence[RolloutTask], chunk_rollouts: int, ended: Ended | None = None) -> Iterator[pa.Table]:
    """Tasks as Arrow tables of `chunk_rollouts` rows at most, or of more where a single question has more: it stays whole."""
    number, chunk = 0, list[RolloutTask]()
    for group in group_by_question(tasks):
        if chunk and len(chunk) + len(group) > chunk_rollouts:
            yield _to_table(number, chunk, ended or {})
            number, chunk = number + 1, []
        chunk += group
    if chunk:
        yield _to_table(number, chunk, ended or {})


def read_tasks(chunk: pa.Table) -> list[RolloutTask]:
    """The tasks of a chunk."""
    tasks = []
    for row in chunk.to_pylist():
        question = {name.removeprefix("question."): value for name, value in row.items() if name.startswith("question.")}
        draw = {name: row[name] for name in _DRAW_FIELDS}
        tasks.append(RolloutTask(schemas.to_question(question), **draw))
    return tasks


def read_ended(chunk: pa.Table) -> dict[str, frozenset[str] | None]:
    """What is known of the tasks of a chunk that have ended."""
    known = zip(read_tasks(chunk), chunk["ended"].to_pylist(), chunk["successes"].to_pylist(), strict=True)
    return {task.id: None if found is None else frozenset(found) for task, has_ended, found in known if has_ended}


def _to_table(number: int, tasks: Sequence[RolloutTask], ended: Ended) -> pa.Table:
    rows = []
    for task in tasks:
        question = {f"question.{name}": value for name, value in schemas.to_row(task.question).items()}
        draw = {name: getattr(task, name) for name in _DRAW_FIELDS}
        found = ended.get(task.id)
        known = {"ended": task.id in ended, "successes": None if found is None else sorted(found)}
        rows.append({"chunk": number, **question, **draw, **known})
    return pa.Table.from_pylist(rows, schema=_TASK_SCHEMA)
