"""Signs that a policy collapses, as shares that are watched while it is collected from.

A policy that is trained on its own searches can end in loops, in copies, or in one query whatever is asked: its replies then
carry no signal. Each sign is a count of `counts.COUNTS` over another one, with the share above which it is worth a look.
The limits are rules of thumb. They lie above what the embedded model showed in `make demo`, which is weak and still learns: 27 %
of its replies were invalid and 1 % repetitive; 12 % of its queries repeated an earlier one, and 2 % copied the question.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_JUDGED_FROM = 50
"""counts of the whole before a share of it is judged"""


@dataclass(frozen=True, slots=True)
class Monitor:
    """The share of `part` in `whole` that is too much above `limit`; `meaning` is what it says of the policy."""

    part: str
    whole: str
    limit: float
    meaning: str

    def compute_share(self, totals: Mapping[str, int]) -> float:
        """The share, 0 of nothing."""
        return totals[self.part] / totals[self.whole] if totals[self.whole] else 0.0


MONITORS = (
    # Loops: seq-rep-3 of Welleck et al., Neural Text Generation with Unlikelihood Training (ICLR 2020), see agent.flaws.
    Monitor("repetitive_replies", "turns", 0.1, "replies go round in circles; lower the temperature or raise repetition_penalty"),
    # A reply without an action earns nothing: the format reward of DeepSeek-R1 (2025), see process.rewards.
    Monitor("invalid_replies", "turns", 0.5, "replies cannot be read; see agent.protocol and agent.max_tokens"),
    # Without hits a query has no rank, so all such queries of a question score the same.
    Monitor("zero_hit_searches", "searches", 0.5, "queries find no page; see search.operator and search.syntax"),
    # A query that was asked before finds what it found before: a turn is spent for nothing.
    Monitor("repeated_queries", "searches", 0.5, "queries repeat an earlier one of their rollout"),
    # The raw question is a baseline (evaluate.baselines); a policy that returns it has learned nothing.
    Monitor("question_copies", "searches", 0.5, "queries only copy the question"),
    # File names are not searchable: such a query scores by what else is in it.
    Monitor("file_name_queries", "searches", 0.1, "queries name a document file, which is not searchable"),
    # Groups whose samples are all alike give no gradient: dynamic sampling of Yu et al., DAPO (2025).
    Monitor("one_query_questions", "sampled_questions", 0.5, "questions get one and the same query from all of their rollouts"),
)


class Watch:
    """Looks at running totals and says once of each monitor that its share is too high."""

    def __init__(self) -> None:
        self._silent = list(MONITORS)

    def find_new(self, totals: Mapping[str, int]) -> Iterator[str]:
        """A warning for each monitor whose share has passed its limit since the last look."""
        for monitor in list(self._silent):
            share = monitor.compute_share(totals)
            if totals[monitor.whole] >= _JUDGED_FROM and share > monitor.limit:
                self._silent.remove(monitor)
                yield f"{share:.0%} of {totals[monitor.whole]:,} {monitor.meaning} ({monitor.part}, limit {monitor.limit:.0%})"
