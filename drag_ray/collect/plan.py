"""Which rollouts make up a run, in chunks. Rollouts have names that never change, so that a plan can be gone on with."""

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from drag_ray import schemas
from drag_ray.agent.rollout import RolloutTask, compute_rollout_id, compute_seed
from drag_ray.types import Question

_TASK_SCHEMA = pa.schema(
    [("chunk", pa.int64()), *((f"question.{field.name}", field.type) for field in schemas.QUESTIONS)]
    + [("preset", pa.string()), ("sample_index", pa.int32()), ("seed", pa.int64()), ("baseline", pa.string())]
)


def build_plan(
    questions: Sequence[Question], presets: Sequence[str], samples_per_question: int, run_seed: int
) -> list[RolloutTask]:
    """Every rollout of a run. The samples of a question follow each other: they share its prompt in the engine's cache."""
    return [
        RolloutTask(question, sample_index, preset, compute_seed(run_seed, compute_rollout_id(question.id, preset, sample_index)))
        for question in questions
        for preset in presets
        for sample_index in range(samples_per_question)
    ]


def choose_pending(plan: Sequence[RolloutTask], finished_ids: Collection[str]) -> list[RolloutTask]:
    """The rollouts of a plan that have not finished."""
    return [task for task in plan if task.id not in finished_ids]


def cut_chunks(tasks: Sequence[RolloutTask], chunk_rollouts: int) -> Iterator[pa.Table]:
    """Tasks as Arrow tables of at most `chunk_rollouts` rows."""
    for number, start in enumerate(range(0, len(tasks), chunk_rollouts)):
        yield _to_table(number, tasks[start : start + chunk_rollouts])


def read_tasks(chunk: pa.Table) -> list[RolloutTask]:
    """The tasks of a chunk."""
    tasks = []
    for row in chunk.to_pylist():
        question = {name.removeprefix("question."): value for name, value in row.items() if name.startswith("question.")}
        draw = {name: row[name] for name in ("sample_index", "preset", "seed", "baseline")}
        tasks.append(RolloutTask(schemas.to_question(question), **draw))
    return tasks


def _to_table(number: int, tasks: Sequence[RolloutTask]) -> pa.Table:
    rows = []
    for task in tasks:
        question = {f"question.{name}": value for name, value in schemas.to_row(task.question).items()}
        draw = {"sample_index": task.sample_index, "preset": task.preset, "seed": task.seed, "baseline": task.baseline}
        rows.append({"chunk": number, **question, **draw})
    return pa.Table.from_pylist(rows, schema=_TASK_SCHEMA)
