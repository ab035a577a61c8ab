"""The context of a report's numbers: how it was searched and sampled, and where everything comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from drag_ray.baselines.baseline import Baseline
from drag_ray.evaluate.config import EvaluateSections
from drag_ray.evaluate.policies.policy import PRESET
from drag_ray.evaluate.policies.retriever_rescoring import FoundWeight
from drag_ray.finetune.training_folder import read_curve
from drag_ray.search.index import read_record
from drag_ray.stage_runs import provenance
from drag_ray.stage_runs.inputs import Inputs


@dataclass(frozen=True)
class ReportContext:
    """All that a report says beside the numbers.

    `search_operator` and `analyzer` name the search, `sampling` how the policies decode; `training_curve` holds
    {"step", "loss", "eval_loss"} with either loss None or absent; `stage_times` are seconds, `machine_costs`
    what the machines cost, where prices were set; `question_weights` are those that
    were found for policies on validation questions; `num_exposures` counts the evaluations of the run that asked these test
    questions before; `machine` is the host that evaluated; `judge` says who judged the answers, and what that took;
    `pictures` which of those that policies see are made worse.
    """

    search_operator: str
    analyzer: str
    sampling: str
    seeds: Sequence[int]
    title: str = "Search queries before and after training"
    summary: str = ""
    created_at: str = ""
    commit: str = ""
    training_curve: Sequence[Mapping[str, float | None]] = ()
    stage_times: Mapping[str, float] = field(default_factory=dict)
    machine_costs: Mapping[str, float] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    question_weights: Mapping[str, FoundWeight] = field(default_factory=dict)
    judge: str = ""
    pictures: str = ""
    machine: Mapping[str, Any] = field(default_factory=dict)
    num_exposures: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON-serialisable data, without the options and the training curve, which other stages keep."""
        data = asdict(self)
        del data["config"], data["training_curve"]
        return data


def read_context(data: Mapping[str, Any]) -> ReportContext:
    """The context of what `ReportContext.to_dict` gave, as it was read from JSON."""
    weights: Any = {policy: FoundWeight(**weight) for policy, weight in data["question_weights"].items()}
    return ReportContext(**{**data, "question_weights": weights})


def join_contexts(contexts: Mapping[str, ReportContext], title: str, summary: str) -> ReportContext:
    """The context of several evaluations that are compared: where they differ, the value of each by its label."""

    def join(name: str) -> str:
        values = {label: getattr(context, name) for label, context in contexts.items()}
        if len(set(values.values())) == 1:
            return next(iter(values.values()))
        return ", ".join(f"{value or 'as they are'} ({label})" for label, value in values.items())

    return ReportContext(
        search_operator=join("search_operator"),
        analyzer=join("analyzer"),
        sampling=join("sampling"),
        judge=" ".join(context.judge for context in contexts.values() if context.judge),
        pictures=join("pictures"),
        num_exposures=max(context.num_exposures for context in contexts.values()),
        seeds=sorted({seed for context in contexts.values() for seed in context.seeds}),
        title=title,
        summary=summary,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=provenance.read_commit(),
        versions=provenance.read_versions(),
        fingerprints={f"{label} {key}": text for label, c in contexts.items() for key, text in c.fingerprints.items()},
        question_weights={f"{label}:{key}": w for label, c in contexts.items() for key, w in c.question_weights.items()},
    )


def build_context(
    sections: EvaluateSections,
    inputs: Inputs,
    num_questions: int,
    baselines: Mapping[str, Baseline],
    question_weights: Mapping[str, FoundWeight],
    judge: str,
    num_exposures: int = 0,
) -> ReportContext:
    """The context of a report of this run. Raises DamageError: a manifest of what was evaluated cannot be read."""
    record = read_record(inputs["index"] / "search_index")
    manifests = inputs.read_lineage()
    made_with = {name: section for one in manifests.values() for name, section in one.origin.get("config", {}).items()}
    are_written = "questions" in manifests and not manifests["index"].counts.get("questions")
    sources = [*(["a model has written"] if are_written else []), *(["a person has kept"] if sections.evaluate.verdicts else [])]
    told = f" that {' and '.join(sources)}" if sources else ""
    questions = f"{num_questions} {sections.evaluate.split} questions{told}"
    asked = f"{questions} on {record.num_pages} pages, asked by {sections.engine.model}."
    return ReportContext(
        search_operator=record.operator,
        analyzer=record.analyzer,
        sampling=PRESET,
        seeds=(sections.seed,),
        summary=" ".join([asked, *(f"{name}: {baseline.describe()}." for name, baseline in baselines.items())]),
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        commit=provenance.read_commit(),
        training_curve=read_curve(inputs.find("finetune")),
        stage_times={stage: manifest.duration_s for stage, manifest in manifests.items()},
        machine_costs={stage: manifest.spent["cost"] for stage, manifest in manifests.items() if "cost" in manifest.spent},
        versions=provenance.read_versions(),
        fingerprints={stage: manifest.fingerprint for stage, manifest in manifests.items()}
        | {"search index": record.fingerprint},
        config=made_with | sections.dump(),
        question_weights=question_weights,
        judge=judge,
        pictures=sections.evaluate.degradation.describe(),
        machine=provenance.read_machine(),
        num_exposures=num_exposures,
    )
