"""Rewards of replies, as Polars expressions: what they gain over the question itself.

A user can always search for the question, so a query that finds no more than that is worth nothing, and one that finds less does
harm. As in s3 (https://arxiv.org/abs/2505.14146, "gain beyond RAG") the reward is the difference to it, here of the utility of
the rank (`agent.scores`). Of a later search counts what it adds to the best before it. The columns are those of `turns`.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence

import polars as pl

from drag_ray.agent.answers import compute_anls
from drag_ray.agent.tasks import ANSWERING, ORDERING
from drag_ray.process.config import ProcessConfig
from drag_ray.search.weighted_words import strip_weights
from drag_ray.types import ActionKind


def repeated_share(query: pl.Expr) -> pl.Expr:
    """The share of a query's words that it has said before, weights left out; 0 for an empty query."""
    words = query.map_elements(strip_weights, return_dtype=pl.String).str.to_lowercase().str.extract_all(r"\w+")
    return (1 - words.list.n_unique() / words.list.len()).fill_nan(0.0)


def turn_reward(config: ProcessConfig) -> pl.Expr:
    """The reward of one reply: the improvement of its search, or the ANLS* of its answer, less what it costs.

    A later search can leave it at the best before it, so that one which finds less costs no more than one which finds as much.
    A call of a tool is worth nothing by itself: what it finds shows in the searches after it. Reads the columns action, is_unfit
    (unreadable, cut, or a search or a call where the answer was asked for), is_later_search,
    improvement, query, answer_reward (of the trajectory), task and change.

    In the task `rerank` each window is worth what it changes in the utility of the list, a loss too, and costs nothing: it is not
    the policy that decides to order it. In the task `answer` the answer is all that counts.
    """
    action, improvement = pl.col("action"), pl.col("improvement")
    wants_answer = pl.col("task").is_in(ANSWERING)
    later = improvement.clip(0.0) - config.search_cost
    found = pl.when("is_later_search").then(later).otherwise(improvement)
    search = found - config.repeat_cost * repeated_share(pl.col("query"))
    return (
        pl.when("is_unfit")
        .then(-config.invalid_cost)
        .when(pl.col("task").is_in(ORDERING))
        .then("change")
        .when(wants_answer & (action == ActionKind.ANSWER.value))
        .then("answer_reward")
        .when(wants_answer)
        .then(0.0)
        .when(action == ActionKind.SEARCH.value)
        .then(search)
        .when(action == ActionKind.ANSWER.value)
        .then(config.answer_weight * pl.col("answer_reward"))
        .otherwise(0.0)
    )


def compute_added_recall(
    evidence: Collection[Hashable], asked: Sequence[Hashable], searches: Iterable[Sequence[Hashable]], depth: int
) -> list[float]:
    """The share of the evidence that each search adds to what the question itself and the searches before it have found.

    A model that reads candidates puts the pages of all of them in order, so that together they are worth the recall of their
    union above that of the question; what was found before is worth nothing again.

    Args:
        evidence: pages; with none every search adds 0.
        asked: the ranking of the question.
        searches: those of the searches, in their order.
        depth: pages that are taken of each.
    """
    wanted = set(evidence)
    missing = wanted.difference(asked[:depth])
    added: list[float] = []
    for pages in searches:
        added.append(len(missing.intersection(pages[:depth])) / len(wanted) if wanted else 0.0)
        missing.difference_update(pages[:depth])
    return added


def compute_answer_rewards(final_answers: pl.Series, gold_answers: pl.Series) -> pl.Series:
    """ANLS* of each final answer against the best of its gold answers, 0 where nothing was answered."""
    known: dict[tuple[str, tuple[str, ...]], float] = {}
    rewards = []
    for answer, gold in zip(final_answers, gold_answers.to_list(), strict=True):
        key = (answer, tuple(gold))
        if answer and key not in known:
            known[key] = compute_anls(answer, gold)
        rewards.append(known[key] if answer else 0.0)
    return pl.Series("answer_reward", rewards, dtype=pl.Float64)
