"""The command `drag-ray score`: stored rollouts scored again, the values under today's terms beside those of then."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from drag_ray.agent.environment import score_ranking
from drag_ray.errors import ConfigError, DataError
from drag_ray.evaluate.comparison import Comparison, compare
from drag_ray.evaluate.effort import Prices
from drag_ray.evaluate.evaluation_folder import Outcome, read_outcome, write_comparison
from drag_ray.evaluate.judged_results import apply_judgements, judge_answers
from drag_ray.evaluate.measure import Unit, choose_criterion, find_task
from drag_ray.evaluate.measures import build_measures
from drag_ray.evaluate.question_result import QuestionResult
from drag_ray.evaluate.report.context import ReportContext
from drag_ray.evaluate.report.formatting import write_cell, write_label, write_number
from drag_ray.evaluate.report.parts import Part, build_parts
from drag_ray.evaluate.results import compute_result, compute_results
from drag_ray.evaluate.statistics.intervals import Resampling, compute_clusters
from drag_ray.evaluate.statistics.pass_at_k import PassRate, compute_pass_rates
from drag_ray.evaluate.statistics.rows import Row, build_rows
from drag_ray.rollout import journal
from drag_ray.rollout.config import JudgeConfig
from drag_ray.rollout.judgements import JUDGE_DIR_NAME
from drag_ray.schemas import to_trajectory
from drag_ray.transcripts.thumbnails import open_thumbnails
from drag_ray.types import Evidence, Ranking, Trajectory

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of a score: pages that count as shown, and the depth of rankings; 0 leaves what the rollouts had."""

    top_k: int = 0
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of rollouts under other terms."""

    parts: Sequence[Part]
    rows: Sequence[Row]


def score_evaluation(
    path: Path,
    terms: Terms,
    prices: Prices,
    measures: Sequence[str] = (),
    report_dir: Path | None = None,
    judge: JudgeConfig | None = None,
) -> Scored:
    """A finished evaluation under other terms: a table of what was recorded beside what is found now, and the new verdict.

    Args:
        terms: what counts as shown, and how deep rankings are looked at.
        prices: of tokens; those that were recorded where they are not known.
        measures: names of those to show; all when empty.
        report_dir: where the whole report under these terms is written, if it is, and what a judge says is kept.
        judge: who judges the answers now; without one, what was said of them when the evaluation ran is taken.

    Raises:
        ArtifactError: the evaluation has not finished, or the report cannot be written.
        DamageError: it is not as it was written.
        ConfigError: a measure is unknown, or a judge is to be asked whose verdicts are kept nowhere.
        DataError: the rollouts were not recorded as deep.
        BudgetError: what the judge may cost is spent.
        TooManyFailuresError: too many requests to the judge failed.
    """
    outcome = read_outcome(path)
    trajectories = {name: [rescore(rollout, terms) for rollout in rollouts] for name, rollouts in outcome.trajectories.items()}
    results, context = _judge(outcome, trajectories, judge, report_dir)
    recorded = outcome.comparison
    comparison = compare(
        results,
        outcome.baseline,
        outcome.subject,
        split=recorded["split"],
        prices=prices.fill(outcome.prices),
        confidence=recorded["confidence"],
        num_resamples=recorded["num_resamples"],
        seed=recorded["seed"],
    )
    rows = _choose_rows(comparison.rows, measures)
    said = _write_terms(outcome, comparison)
    if report_dir:
        context = replace(context, title="Scored again", summary=" ".join(said))
        write_comparison(report_dir, comparison, results, trajectories, context, open_thumbnails(outcome.path))
    parts = [
        Part("Terms", said),
        Part("Measures", table=_build_table(rows, outcome.list_values())),
        *(part for part in build_parts(comparison, context) if part.heading not in ("Questions", "Measures", "Differences")),
        Part("The verdict that was recorded", ["Recorded then: " + " ".join(recorded["verdict"])]),
    ]
    return Scored(parts, rows)


def _judge(
    outcome: Outcome, trajectories: Mapping[str, Sequence[Trajectory]], judge: JudgeConfig | None, report_dir: Path | None
) -> tuple[dict[str, list[QuestionResult]], ReportContext]:
    """The results of the rollouts, by the judge who is to be asked or else the one who was; the context names who has judged."""
    results = compute_results(trajectories, outcome.questions)
    judgements, context = outcome.read_judgements(), outcome.context
    if judge:
        if report_dir is None:
            raise ConfigError("--judge: verdicts cost something and want a place to be kept. Name one with --report FOLDER.")
        judgements = judge_answers(trajectories, judge, report_dir / JUDGE_DIR_NAME)
        context = replace(context, judge=judgements.describe(judge))
    return (apply_judgements(results, trajectories, judgements) if judgements else results), context


def score_collection(path: Path, terms: Terms, measures: Sequence[str] = (), num_resamples: int = 10_000) -> Scored:
    """The rollouts of a collection under other terms, and pass@(k, n) where its questions have several samples.

    Those of baselines and of other openings stand apart from the policy's own; those with a hint say nothing of a policy, and are
    left out.

    Args:
        terms: what counts as shown, and how deep rankings are looked at.
        measures: names of those to show; all when empty.

    Raises:
        ConfigError: a measure is unknown.
        DataError: there is no rollout, or they were not recorded as deep.
    """
    groups: dict[str, list[Trajectory]] = {}
    for rollout in map(to_trajectory, journal.read_trajectories(path).to_pylist()):
        if rollout.evidence and not rollout.provenance.hinted:
            asked = rollout.provenance
            name = asked.baseline or (f"opening {asked.prompt_set}" if asked.prompt_set else "collected")
            groups.setdefault(name, []).append(rollout)
    if not groups:
        raise DataError(f"{path}: no rollout of a question with evidence, expected at least one. Run: python jobs/collect.py")
    scored = [_score_group(name, rollouts, terms, measures, num_resamples) for name, rollouts in groups.items()]
    return Scored([part for group in scored for part in group.parts], [row for group in scored for row in group.rows])


def _score_group(name: str, rollouts: Sequence[Trajectory], terms: Terms, measures: Sequence[str], num_resamples: int) -> Scored:
    old = {name: [compute_result(rollout) for rollout in rollouts]}
    criterion = choose_criterion(find_task(old[name]))
    new = {name: [compute_result(rescore(rollout, terms)) for rollout in rollouts]}
    drawn = Resampling(compute_clusters(new[name]), CONFIDENCE, num_resamples)
    old_values = {row.name: {name: row.metrics[name].value} for row in build_rows(old, [], build_measures(old), drawn)}
    rows = _choose_rows(build_rows(new, [], build_measures(new, criterion.primary), drawn), measures)
    num_questions = len({result.question_id for result in new[name]})
    is_repeated = num_questions < len(rollouts)
    counted = f"{name}: {len(rollouts):,} rollouts of {num_questions:,} questions; every rollout counts as much as any other."
    passed = _build_pass_table(compute_pass_rates(new[name], criterion, CONFIDENCE, num_resamples)) if is_repeated else ()
    return Scored([Part(name, [counted], _build_table(rows, old_values)), Part("Several samples", table=passed)], rows)


def _choose_rows(rows: Sequence[Row], names: Sequence[str]) -> Sequence[Row]:
    by_name = {row.name: row for row in rows}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise ConfigError(f"--measures {unknown[0]}: no such measure here, expected some of {', '.join(by_name)}.")
    return [by_name[name] for name in names] or rows


def _write_terms(outcome: Outcome, comparison: Comparison) -> list[str]:
    old_top_k, old_depth = outcome.comparison["top_k"], outcome.comparison["depth"]
    sentences = [
        f"{outcome.path}: scored again: top_k {old_top_k} -> {comparison.top_k}, depth {old_depth} -> {comparison.depth}. "
        "Where two values stand, the first is as it was recorded."
    ]
    if comparison.top_k != old_top_k:
        sentences.append(f"The policies were shown {old_top_k} pages a search: later searches and answers rest on those.")
    return sentences


def _build_table(rows: Sequence[Row], old: Mapping[str, Mapping[str, float | None]]) -> list[list[str]]:
    """The value of each measure for each policy, and that of before."""
    table = [["measure", *rows[0].metrics]]
    for row in rows:
        cells = []
        for policy, metric in row.metrics.items():
            before = write_number(old.get(row.name, {}).get(policy), row.unit)
            cells.append(f"{before} -> {write_cell(metric.value, metric, row.unit)}")
        table.append([write_label(row), *cells])
    return table


def _build_pass_table(rates: Sequence[PassRate]) -> list[list[str]]:
    """A line for each number of turns, a column for each number of samples."""
    cells: dict[int, list[str]] = {}
    for rate in rates:
        cells.setdefault(rate.num_turns, []).append(write_cell(rate.value, rate, Unit.SHARE))
    sizes = dict.fromkeys(rate.num_samples for rate in rates)
    return [["pass@k % within", *(f"k = {size}" for size in sizes)], *([f"turn {turn}", *row] for turn, row in cells.items())]


def rescore(trajectory: Trajectory, terms: Terms) -> Trajectory:
    """The rollout as if `terms.top_k` pages of each of its searches had counted, to `terms.depth`.

    Its replies are those of a policy that was shown as many pages as before, which matters where it searched again.

    Raises:
        DataError: its rankings were not recorded as deep, or the depth is below top_k.
    """
    top_k, depth = terms.top_k or trajectory.top_k, terms.depth or trajectory.depth
    if depth > trajectory.depth or depth < top_k:
        raise DataError(
            f"trajectory {trajectory.id!r}: top_k {top_k}, depth {depth}: expected a depth of at least top_k and at most "
            f"{trajectory.depth}, to which its rankings were recorded. For more, run it again with a larger agent.depth."
        )
    asked = _cut(Ranking(trajectory.question_search.hits), trajectory.evidence, top_k, depth)
    return replace(
        trajectory,
        top_k=top_k,
        depth=depth,
        turns=tuple(replace(turn, ranking=_cut(turn.ranking, trajectory.evidence, top_k, depth)) for turn in trajectory.turns),
        question_search=replace(trajectory.question_search, hits=asked.hits, rank=asked.evidence_rank),
    )


def _cut(ranking: Ranking, evidence: tuple[Evidence, ...], top_k: int, depth: int) -> Ranking:
    hits = tuple(hit for hit in ranking.hits if hit.rank <= depth)
    return score_ranking(replace(ranking, hits=hits), evidence, top_k)
