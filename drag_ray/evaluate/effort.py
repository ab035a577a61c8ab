"""The cost of a solved question, whether effort goes where it pays, and what later turns bring.

Ratios and a rank statistic over whole evaluations; success within so many turns, beside single searches that show as many pages.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from drag_ray.evaluate.measure import Criterion
from drag_ray.evaluate.question_result import QuestionResult, is_within
from drag_ray.evaluate.statistics.intervals import Floats, Resampling, compute_means


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of a million tokens, in whichever currency; 0 where that is not known. `own` are the prices of policies that have
    others than these."""

    prompt: float = 0.0
    completion: float = 0.0
    own: Mapping[str, "Prices"] = field(default_factory=dict)

    def find(self, policy: str) -> "Prices":
        """The prices of a policy."""
        return self.own.get(policy, self)

    def fill(self, recorded: "Prices") -> "Prices":
        """These prices, and those of `recorded` where they say nothing; policies keep their own."""
        known = self if self.are_known else recorded
        return Prices(known.prompt, known.completion, {**recorded.own, **self.own})

    @property
    def are_known(self) -> bool:
        """True if a rollout can be priced."""
        return self.prompt > 0 or self.completion > 0


NO_PRICES = Prices()


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of two means with its interval; all None where it has no value."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Effort:
    """The effort of a policy. When a question is solved, `measure.Criterion` says; by a failed rollout it is not.

    Attributes:
        tokens_per_solved: tokens written in all rollouts, over the questions solved.
        seconds_per_solved: seconds of all rollouts, each beside others on its engine, over the questions solved.
        cost_per_solved: the price of all tokens read and written, over the questions solved; none without prices.
        wasted_effort: mean turns of the rollouts that solve nothing over that of those that do: above 1 the policy grinds on what
            it does not solve, below 1 it fails fast. None where all rollouts take as many.
        kuiper: how far solving depends on turns, in questions, see `compute_kuiper`.
    """

    tokens_per_solved: Ratio
    seconds_per_solved: Ratio
    cost_per_solved: Ratio
    wasted_effort: Ratio
    kuiper: float | None

    def list_ratios(self) -> list[Ratio]:
        """All but the last, in order, the last as a ratio without an interval."""
        values = [getattr(self, field.name) for field in fields(self)]
        return [value if isinstance(value, Ratio) else Ratio(value) for value in values]


EFFORT_LABELS = {
    "tokens_per_solved": "Tokens a solved question",
    "seconds_per_solved": "Seconds a solved question",
    "cost_per_solved": "Cost a solved question",
    "wasted_effort": "Wasted effort",
    "kuiper": "Kuiper statistic",
}


def compute_efforts(
    results: Mapping[str, Sequence[QuestionResult]], criterion: Criterion, prices: Prices, resampling: Resampling
) -> dict[str, Effort]:
    """The effort of each policy that a model writes for.

    Wasted effort and the Kuiper statistic are those of MADQA (https://arxiv.org/abs/2603.12180), over the rollouts that have a
    turn; intervals are of ratios of means in the same resamples.
    """
    solved = {policy: [criterion.solved_at(row) is not None for row in rows] for policy, rows in results.items()}
    tables = {
        policy: _tabulate_effort(rows, solved[policy], prices.find(policy))
        for policy, rows in results.items()
        if any(row.usage.num_completion_tokens for row in rows)
    }
    if not tables:
        return {}
    samples = resampling.draw_means(np.hstack(list(tables.values())))
    drawn = np.split(samples, len(tables), axis=1)
    return {
        policy: _build_effort(results[policy], solved[policy], table, sample, resampling, prices.find(policy))
        for (policy, table), sample in zip(tables.items(), drawn, strict=True)
    }


def compute_kuiper(turns: Sequence[int], is_solved: Sequence[bool]) -> float | None:
    """The Kuiper statistic of solving in order of effort: the range of the running sum of (solved - share solved).

    Low where rollouts of all lengths solve alike. Sorting leaves the order of equal efforts open, on which MADQA's own value
    depends; here rollouts of equal effort count together, so the sum is looked at after each group of them alone.

    Returns:
        The range in questions; None where all efforts are equal, or all or none are solved.
    """
    _, groups = np.unique(np.asarray(turns, dtype=np.int64), return_inverse=True)
    solved = np.asarray(is_solved, dtype=np.float64)
    if len(solved) == 0 or groups.max() == 0 or solved.min() == solved.max():
        return None
    # The last is 0, as is the sum before the first.
    sums = np.cumsum(np.bincount(groups, weights=solved - solved.mean()))
    return float(max(sums.max(), 0.0) - min(sums.min(), 0.0))


_COLUMNS = ("tokens", "seconds", "cost", "solved", "turns_solved", "turns_unsolved")


def _tabulate_effort(rows: Sequence[QuestionResult], solved: Sequence[bool], prices: Prices) -> Floats:
    """The columns `_COLUMNS`; turns stand in that of their outcome alone, and nowhere for rollouts without one."""
    return np.array(
        [
            [
                usage.num_completion_tokens,
                usage.duration_s,
                (usage.num_prompt_tokens * prices.prompt + usage.num_completion_tokens * prices.completion) / 1e6,
                float(is_solved),
                usage.num_iterations if usage.num_iterations and is_solved else np.nan,
                usage.num_iterations if usage.num_iterations and not is_solved else np.nan,
            ]
            for usage, is_solved in zip((row.usage for row in rows), solved, strict=True)
        ],
        dtype=np.float64,
    )


def _build_effort(
    rows: Sequence[QuestionResult], solved: Sequence[bool], table: Floats, samples: Floats, resampling: Resampling, prices: Prices
) -> Effort:
    means = compute_means(table)[None, :]

    def build_ratio(numerator: str, denominator: str) -> Ratio:
        over, under = _COLUMNS.index(numerator), _COLUMNS.index(denominator)
        [value] = _divide(means[:, over], means[:, under])
        interval = resampling.compute_interval(_divide(samples[:, over], samples[:, under])) or (None, None)
        return Ratio() if np.isnan(value) else Ratio(float(value), *interval)

    num_turns = [row.usage.num_iterations for row in rows]
    taken = [(num, is_solved) for num, is_solved in zip(num_turns, solved, strict=True) if num]
    turns, are_solved = [num for num, _ in taken], [is_solved for _, is_solved in taken]
    return Effort(
        tokens_per_solved=build_ratio("tokens", "solved"),
        seconds_per_solved=build_ratio("seconds", "solved"),
        cost_per_solved=build_ratio("cost", "solved") if prices.are_known else Ratio(),
        wasted_effort=build_ratio("turns_unsolved", "turns_solved") if len(set(turns)) > 1 else Ratio(),
        kuiper=compute_kuiper(turns, are_solved),
    )


def _divide(over: Floats, under: Floats) -> Floats:
    """NaN where there is nothing to divide by."""
    return np.divide(over, under, out=np.full(over.shape, np.nan), where=under > 0)


@dataclass(frozen=True, slots=True)
class TurnSuccess:
    """The shares of questions of which evidence is shown within the first `turn` turns of a policy, and by others at equal pages.

    Attributes:
        turn: counted from 1.
        num_pages: the mean of the pages to which all are cut: those that the policy has shown on a question up to here, at least
            top_k and at most depth.
        success: the policy's share.
        first_search: that of its own first search, shown as far.
        question: that of the question searched as it stands, shown as far; None where that is not known, like those that follow.
        difference: `success` less `question`, with its interval.
    """

    turn: int
    num_pages: float
    success: float
    first_search: float
    question: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None


def compute_turns(
    results: Mapping[str, Sequence[QuestionResult]], question_ranks: Sequence[int | None] | None, resampling: Resampling
) -> dict[str, tuple[TurnSuccess, ...]]:
    """Success by turn of each policy that searches more than once, up to the last turn that shows a page."""
    tables = {
        (policy, turn): _tabulate_turn(rows, question_ranks, turn)
        for policy, rows in results.items()
        if any(row.searches.num_searches > 1 for row in rows)
        for turn in range(1, 2 + max(sum(num < row.count_shown() for num in row.searches.shown_by_turn) for row in rows))
    }
    if not tables:
        return {}
    differences = np.stack([table[:, 1] - table[:, 3] for table in tables.values()], axis=1)
    samples = resampling.draw_means(differences)
    found: dict[str, tuple[TurnSuccess, ...]] = {}
    for (policy, turn), column in zip(tables, samples.T, strict=True):
        summary = _summarise(turn, tables[policy, turn], resampling.compute_interval(column))
        found[policy] = (*found.get(policy, ()), summary)
    return found


def _tabulate_turn(rows: Sequence[QuestionResult], question_ranks: Sequence[int | None] | None, turn: int) -> Floats:
    """For each question the pages within `turn`, and whether the policy, its first search and the question find it there."""
    table = np.full((len(rows), 4), np.nan)
    for index, row in enumerate(rows):
        num_shown, num_pages = row.count_shown(turn), row.count_compared(turn)
        table[index, :3] = num_pages, row.is_met_within(min(num_shown, num_pages)), row.is_hit_at(num_pages)
        if question_ranks:
            table[index, 3] = is_within(question_ranks[index], num_pages)
    return table


def _summarise(turn: int, table: Floats, interval: tuple[float, float] | None) -> TurnSuccess:
    num_pages, success, first_search, question = (float(mean) for mean in table.mean(axis=0))
    if math.isnan(question):
        return TurnSuccess(turn, num_pages, success, first_search)
    return TurnSuccess(turn, num_pages, success, first_search, question, success - question, *(interval or (None, None)))
