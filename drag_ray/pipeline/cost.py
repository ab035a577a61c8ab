"""The cost of a run's stages, a question of a collection, and what more questions would cost at that."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from drag_ray.errors import ArtifactError
from drag_ray.evaluate.evaluation_folder import find_evaluation, read_comparison, read_results
from drag_ray.stage_runs.damage import list_finished
from drag_ray.storage.artifacts import Manifest, require_manifest


@dataclass(frozen=True)
class PolicyCost:
    """The cost of a policy of an evaluation.

    Attributes:
        machines: its part of what the machines of the stage cost: that which its rollouts have of the seconds of all.
        solved: questions that it solved, as the report counts them.
    """

    policy: str
    machines: float
    solved: int


@dataclass(frozen=True)
class StageCost:
    """The cost of a finished stage, over all its starts, in whichever currency the prices were.

    Attributes:
        machines: the price of the hours.
        replies: what endpoints cost that were asked; it comes on top.
        questions: of a collection, else 0.
        solved: questions of a collection that a rollout succeeded with.
        policies: of an evaluation, those that a model writes for and that solved a question.
    """

    address: str
    gpu_hours: float
    cpu_hours: float
    machines: float
    replies: float
    questions: int
    solved: int
    policies: tuple[PolicyCost, ...] = ()

    @property
    def total(self) -> float:
        """Machines and replies."""
        return self.machines + self.replies

    def forecast(self, num_questions: int) -> "StageCost":
        """The same for so many questions, all of it in proportion: the start of engines too, so rather more than it will be."""
        share = num_questions / self.questions
        hours = (value * share for value in (self.gpu_hours, self.cpu_hours, self.machines, self.replies))
        return StageCost(self.address, *hours, questions=num_questions, solved=round(self.solved * share))


def read_costs(run_dir: Path) -> list[StageCost]:
    """The finished stages of a run of which it is known what they cost. Raises ArtifactError where there is none, or a manifest
    cannot be read, and DamageError where an evaluation is not what was written."""
    costs = [_read_cost(require_manifest(stage_dir), stage_dir) for stage_dir in list_finished(run_dir)]
    known = [cost for cost in costs if cost.total or cost.gpu_hours or cost.cpu_hours]
    if not known:
        raise ArtifactError(
            f"{run_dir}: no finished stage has recorded its cost. Start stages with prices: --cost.gpu-hour or --cost.cpu-hour."
        )
    return known


def _read_cost(manifest: Manifest, stage_dir: Path) -> StageCost:
    counts, spent = manifest.counts, manifest.spent
    is_collection = "questions_with_success" in counts and "rollouts" in counts
    return StageCost(
        manifest.stage,
        *(float(spent.get(name, 0)) for name in ("gpu_hours", "cpu_hours", "cost")),
        replies=float(counts.get("cost") or 0),
        questions=counts["questions"] if is_collection else 0,
        solved=counts["questions_with_success"] if is_collection else 0,
        policies=_share_cost(stage_dir, float(spent.get("cost", 0))),
    )


def _share_cost(stage_dir: Path, machines: float) -> tuple[PolicyCost, ...]:
    """The cost of an evaluation's machines, by policies; nothing of another stage."""
    if not machines or find_evaluation(stage_dir) != stage_dir:
        return ()
    seconds = {policy: sum(row.usage.duration_s for row in rows) for policy, rows in read_results(stage_dir).items()}
    in_all = sum(seconds.values())
    efforts = read_comparison(stage_dir)["efforts"]
    per_solved = {policy: effort["seconds_per_solved"]["value"] for policy, effort in efforts.items()}
    return tuple(
        PolicyCost(policy, machines * seconds[policy] / in_all, round(seconds[policy] / each))
        for policy, each in per_solved.items()
        if each
    )


def format_costs(costs: list[StageCost], num_questions: int = 0) -> str:
    """A table, a sentence for each collection, with `num_questions` what it would cost with so many, and one for each policy.
    Raises ArtifactError where there is no collection to reckon with."""
    width = max(len("all"), *(len(cost.address) for cost in costs))
    rows = [(cost.address, [cost.gpu_hours, cost.cpu_hours, cost.machines, cost.replies]) for cost in costs]
    rows.append(("all", [sum(column) for column in zip(*(values for _, values in rows), strict=True)]))
    lines = [f"{'':<{width}}" + "".join(f"{name:>12}" for name in ("GPU hours", "CPU hours", "machines", "replies"))]
    lines += [f"{name:<{width}}" + "".join(f"{value:>12,.4g}" for value in values) for name, values in rows]
    lines += [line for cost in _list_collections(costs, num_questions) for line in _say(cost, num_questions)]
    lines += [
        f"{cost.address}: {one.policy} solved {one.solved:,} questions, {one.machines / one.solved:.4g} each for machines"
        for cost in costs
        for one in cost.policies
    ]
    return "\n".join(lines)


def _list_collections(costs: list[StageCost], num_questions: int) -> list[StageCost]:
    found = [cost for cost in costs if cost.questions]
    if num_questions and not found:
        raise ArtifactError("--questions: no finished collection has recorded its cost, so nothing can be estimated.")
    return found


def _say(cost: StageCost, num_questions: int) -> list[str]:
    each, solved = f"{cost.total / cost.questions:.4g} a question", "none is solved"
    if cost.solved:
        solved = f"{cost.solved:,} are solved, {cost.total / cost.solved:.4g} each"
    said = [f"{cost.address}: {cost.questions:,} questions, {each}; {solved}"]
    if num_questions:
        more = cost.forecast(num_questions)
        said.append(
            f"{cost.address} of {num_questions:,} questions, at most, as the start of the engines counts as often: "
            f"{more.gpu_hours:,.4g} GPU hours, {more.cpu_hours:,.4g} CPU hours, {more.total:,.4g}"
        )
    return said


def format_json(costs: list[StageCost], num_questions: int = 0) -> str:
    """The same for programs. Errors are those of `format_costs`."""
    forecasts = [cost.forecast(num_questions) for cost in _list_collections(costs, num_questions)] if num_questions else []
    return json.dumps({"stages": list(map(asdict, costs)), "forecasts": list(map(asdict, forecasts))}, indent=2)
