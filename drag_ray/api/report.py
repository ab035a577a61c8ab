"""Reports of evaluations, in sentences and tables: for a terminal, a notebook or further computation."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from drag_ray.config import build
from drag_ray.errors import ConfigError
from drag_ray.evaluate.comparison import Comparison
from drag_ray.evaluate.effort import Prices
from drag_ray.evaluate.evaluation_folder import find_evaluation
from drag_ray.evaluate.pairing import Side, compare_evaluations
from drag_ray.evaluate.report.parts import Part, build_parts, format_console
from drag_ray.evaluate.scoring import Terms, score_collection, score_evaluation
from drag_ray.evaluate.statistics.rows import Row
from drag_ray.extras import explain_missing
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.transcripts.webpage import render_page

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, repr=False)
class Report:
    """Sentences and tables about policies. `str` of it is what the command line prints; a notebook shows it as HTML.

    Attributes:
        parts: in the order in which they explain each other.
        summary: what is compared, empty where the first part says so.
        comparison: the numbers of two evaluations that were compared.
        rows: the measures, with the values of each policy.
    """

    parts: Sequence[Part]
    summary: str = ""
    comparison: Comparison | None = None
    rows: Sequence[Row] = ()

    def __str__(self) -> str:
        return (f"{self.summary}\n\n" if self.summary else "") + format_console(self.parts)

    def __repr__(self) -> str:
        return f"Report({', '.join(part.heading for part in self.parts)})"

    def _repr_html_(self) -> str:
        return render_page("api/report.html.j2", report=self)

    def to_frame(self) -> "pl.DataFrame":
        """The measures of the policies, or of the parts of a collection: columns as those of `Run.read_measures`.

        Examples:
            >>> drag_ray.score("runs/small", top_k=1, measures=["mrr"]).to_frame()["policy"].to_list()
            ['question', 'base', 'tuned']
            >>> both = drag_ray.compare("runs/small", "runs/small", a_policies=["base"], b_policies=["tuned"])
            >>> both.to_frame().filter(measure="mrr")["policy"].to_list()
            ['A:base', 'B:tuned']
        """
        from drag_ray.api.frames import to_measures

        return to_measures([asdict(row) for row in self.rows])


@explain_missing()
def compare(
    a: str | Path,
    b: str | Path,
    *,
    a_policies: Sequence[str] = (),
    b_policies: Sequence[str] = (),
    prompt_price: float = 0.0,
    completion_price: float = 0.0,
    report: str | Path | None = None,
) -> Report:
    """Policies of two finished evaluations, compared on the questions that both have asked.

    Args:
        a: a run or its evaluate folder, with the policies to compare with.
        b: another, with the policies whose gain is in question.
        a_policies: those of `a`, the first of them the one that matters; its tuned policy when empty.
        b_policies: the same of `b`.
        prompt_price: of a million tokens read; as recorded where it is 0.
        completion_price: of a million tokens written; an endpoint keeps its own.
        report: a folder that the whole report is written into.

    Raises:
        ArtifactError: an evaluation has not finished, or the report cannot be written.
        DamageError: one is not as it was written.
        DataError: they have no question in common or other evidence for one, other top_k or depth, or no such policy.
        ConfigError: a price is no price.

    Examples:
        >>> drag_ray.compare("runs/small", "runs/small", a_policies=["question"]).comparison.policies
        ('A:question', 'B:tuned')
    """
    first, second = Side(Path(a), tuple(a_policies)), Side(Path(b), tuple(b_policies))
    prices = _build_prices(prompt_price, completion_price)
    comparison, context = compare_evaluations(first, second, prices, report_dir=Path(report) if report else None)
    return Report(build_parts(comparison, context), context.summary, comparison, comparison.rows)


@explain_missing()
def score(
    path: str | Path,
    *,
    top_k: int = 0,
    depth: int = 0,
    measures: Sequence[str] = (),
    judge: str | Path | None = None,
    prompt_price: float = 0.0,
    completion_price: float = 0.0,
    report: str | Path | None = None,
) -> Report:
    """The rollouts of a finished evaluation, or of a collection, scored again without a model.

    Args:
        path: a run, or its evaluate or collect folder; of a run the evaluation if there is one.
        top_k: pages of a search that count as shown; as recorded where it is 0.
        depth: how far rankings are looked at, at most as recorded.
        measures: those to show, by their names; all when empty.
        judge: a TOML file whose `evaluate.judge` judges the answers of an evaluation.
        prompt_price: of a million tokens read, for an evaluation; as recorded where it is 0.
        completion_price: of a million tokens written; an endpoint keeps its own.
        report: a folder that the whole report of an evaluation is written into.

    Raises:
        DragRayError: those of `score_evaluation` and `score_collection`.

    Examples:
        >>> print(drag_ray.score("runs/small/evaluate", top_k=1, measures=["mrr"]))
        runs/small/evaluate: scored again: top_k 3 -> 1, ...
    """
    path, terms = Path(path), Terms(max(0, top_k), max(0, depth))
    if find_evaluation(path):
        prices, report_dir = _build_prices(prompt_price, completion_price), Path(report) if report else None
        judged_by = build(RunConfig, {}, Path(judge)).evaluate.judge if judge else None
        scored = score_evaluation(path, terms, prices, measures, report_dir, judged_by)
    else:
        scored = score_collection(path / "collect" if (path / "collect").is_dir() else path, terms, measures)
    return Report(scored.parts, rows=scored.rows)


def _build_prices(prompt: float, completion: float) -> Prices:
    for name, price in (("prompt_price", prompt), ("completion_price", completion)):
        if not 0 <= price < math.inf:
            raise ConfigError(f"{name} of a million tokens: got {price!r}, expected a finite number that is not negative.")
    return Prices(prompt, completion)
