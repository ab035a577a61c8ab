"""Counts of what rollouts came to, which add up over chunks, files and attempts, and the yields that compare ways of sampling."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from drag_ray import schemas
from drag_ray.agent.degeneration import copies_file_name, copies_question, find_repetitive, to_query_key
from drag_ray.storage.file_access import reading
from drag_ray.types import ActionKind, Trajectory


def count_yields(searches: pl.DataFrame) -> dict[str, int]:
    """The yields of all searches of some questions.

    A preference pair is a query that found evidence within top_k and one that did not, asked in the same state; each distinct
    query counts once in its state. Rows of the format `dpo` are others: they compare gains, the question's own too. Returns
    questions_with_success, distinct_successful_queries (within their questions) and preference_pairs. `searches`: columns
    question_id, state (what stands for the conversation before the query), query_key and found, which may be hashes; without
    searches that failed.
    """
    found = searches.filter("found")
    outcomes = searches.group_by("question_id", "state", "query_key").agg(pl.col("found").any())
    states = outcomes.group_by("question_id", "state").agg(
        num_found=pl.col("found").cast(pl.Int64).sum(), num_missed=(~pl.col("found")).cast(pl.Int64).sum()
    )
    return {
        "questions_with_success": found["question_id"].n_unique(),
        "distinct_successful_queries": found.select("question_id", "query_key").n_unique(),
        "preference_pairs": int((states["num_found"] * states["num_missed"]).sum()),
    }


ROLLOUT_COUNTS = {
    "finished": "rollouts that came to an end",
    "failed": "rollouts that failed",
    "found": "rollouts with a search that found evidence within top_k",
}
TURN_COUNTS = {
    "turns": "replies of the policy",
    "invalid_replies": "replies from which no action could be read",
    "repetitive_replies": "replies that go round in circles",
    "prompt_tokens": "tokens of the prompts, those that the engine had cached included",
    "completion_tokens": "tokens that the policy wrote",
    "searches": "queries of the policy",
    "zero_hit_searches": "queries without a hit",
    "repeated_queries": "queries that the same rollout had asked before",
    "question_copies": "queries with all words of the question in their order",
    "file_name_queries": "queries with the name of a document file",
    "tool_calls": "calls of tools other than search",
    "tool_errors": "calls of tools that failed",
}
QUESTION_COUNTS = {
    "sampled_questions": "questions with several rollouts that searched",
    "one_query_questions": "such questions whose rollouts all wrote the same query",
}
"""Of the questions of one chunk: a question that is cut by the end of a chunk counts in both."""
COUNTS = ROLLOUT_COUNTS | TURN_COUNTS | QUESTION_COUNTS
WORKER_COUNTS = {
    "hinted": "rollouts that were shown the evidence page and came to an end; no other count knows them",
    "skipped": "rollouts that were not needed",
    "shared_searches": "searches that were answered by an earlier one",
}
"""What only the worker can tell."""

_TURN_COLUMNS = (
    *("action", "query", "raw_text", "rank_score", "error", "tool_error"),
    *("num_prompt_tokens", "num_completion_tokens"),
)
_BATCH_BYTES = 4_000_000
_TURN_SCHEMA = pl.Schema(
    {
        **dict.fromkeys(("trajectory_id", "question_id", "question"), pl.String),
        "evidence_files": pl.List(pl.String),
        **dict.fromkeys(("action", "query", "raw_text"), pl.String),
        "rank_score": pl.Float64,
        **dict.fromkeys(("error", "tool_error"), pl.String),
        **dict.fromkeys(("num_prompt_tokens", "num_completion_tokens", "num_hits"), pl.Int64),
    }
)


def count_chunk(trajectories: Sequence[Trajectory]) -> dict[str, int]:
    """`COUNTS` of some rollouts."""
    turns = pl.DataFrame([row for trajectory in trajectories for row in _list_turns(trajectory)], _TURN_SCHEMA, orient="row")
    queries = _list_queries(turns)
    num_failed = sum(bool(trajectory.error) for trajectory in trajectories)
    return {"finished": len(trajectories) - num_failed, "failed": num_failed, **_count_turns(turns), **_count_questions(queries)}


def count_files(paths: Iterable[Path]) -> dict[str, Any]:
    """Counts of the policy's trajectories in some files, without those with a hint; a few MB of files at a time are in memory.
    Returns found, `TURN_COUNTS`, `QUESTION_COUNTS` and `count_yields` over all files, and queries_per_question: the mean number
    of distinct queries."""
    totals: Counter[str] = Counter(dict.fromkeys(("found", *TURN_COUNTS), 0))
    nothing = _TURN_SCHEMA.to_frame()
    queries, searches = [_list_queries(nothing)], [_list_searches(nothing)]
    for batch in _batch_files(paths):
        turns = _read_turns(batch)
        totals.update(_count_turns(turns))
        queries.append(_list_queries(turns))
        searches.append(_list_searches(turns))
    asked = pl.concat(queries)
    num_distinct = asked.group_by("question_id").agg(pl.col("query").n_unique()).select(pl.col("query").mean()).item()
    return {
        **totals,
        **_count_questions(asked),
        **count_yields(pl.concat(searches)),
        "queries_per_question": round(num_distinct or 0.0, 4),
    }


def _count_turns(turns: pl.DataFrame) -> dict[str, int]:
    is_search = pl.col("action") == ActionKind.SEARCH.value
    query = to_query_key(pl.col("query"))
    totals = turns.with_columns(is_repetitive=find_repetitive(turns["raw_text"])).select(
        found=pl.col("trajectory_id").filter(pl.col("rank_score") > 0).n_unique(),
        turns=pl.len(),
        invalid_replies=(pl.col("action") == ActionKind.INVALID.value).sum(),
        repetitive_replies=pl.col("is_repetitive").sum(),
        prompt_tokens=pl.col("num_prompt_tokens").sum(),
        completion_tokens=pl.col("num_completion_tokens").sum(),
        searches=is_search.sum(),
        zero_hit_searches=(is_search & (pl.col("num_hits") == 0) & (pl.col("error") == "")).sum(),
        repeated_queries=(is_search & ~pl.struct("trajectory_id", "action", query).is_first_distinct()).sum(),
        question_copies=(is_search & copies_question(pl.col("query"), pl.col("question"))).sum(),
        file_name_queries=(is_search & copies_file_name(pl.col("query"), pl.col("evidence_files"))).sum(),
        tool_calls=(pl.col("action") == ActionKind.TOOL.value).sum(),
        tool_errors=(pl.col("tool_error") != "").sum(),
    )
    return totals.row(0, named=True)


def _list_queries(turns: pl.DataFrame) -> pl.DataFrame:
    """The distinct queries of each rollout, in few bytes: a hash stands for a text."""
    searches = turns.filter(pl.col("action") == ActionKind.SEARCH.value)
    return searches.select("question_id", pl.col("trajectory_id").hash(), to_query_key(pl.col("query")).hash()).unique()


def _list_searches(turns: pl.DataFrame) -> pl.DataFrame:
    """The searches that ran as `count_yields` takes them.

    What the policy is told follows from what it wrote, so the replies before a query stand for its state.
    """
    replies = pl.struct("raw_text", pl.int_range(pl.len()).over("trajectory_id")).hash()
    return (
        turns.with_columns(state=replies.cum_sum().over("trajectory_id") - replies)
        .filter(pl.col("action") == ActionKind.SEARCH.value, pl.col("error") == "")
        .select("question_id", "state", query_key=to_query_key(pl.col("query")).hash(), found=pl.col("rank_score") > 0)
    )


def _count_questions(queries: pl.DataFrame) -> dict[str, int]:
    questions = queries.group_by("question_id").agg(pl.col("trajectory_id", "query").n_unique())
    sampled = questions.filter(pl.col("trajectory_id") > 1)
    return {"sampled_questions": sampled.height, "one_query_questions": sampled.filter(pl.col("query") == 1).height}


def _list_turns(trajectory: Trajectory) -> Iterable[tuple[Any, ...]]:
    files = [page.file for page in trajectory.evidence]
    for turn in trajectory.turns:
        sizes = (turn.reply.num_prompt_tokens, turn.reply.num_completion_tokens, len(turn.ranking.hits))
        said = (turn.action.value, turn.query, turn.raw_text, turn.ranking.rank_score, turn.error, turn.call.error)
        yield (trajectory.id, trajectory.question_id, trajectory.question, files, *said, *sizes)


def _batch_files(paths: Iterable[Path]) -> Iterator[list[Path]]:
    """Files one after the other, so many that they are `_BATCH_BYTES` together: engines write small ones, thousands of them."""
    batch, num_bytes = list[Path](), 0
    for path in paths:
        with reading(path):
            num_bytes += path.stat().st_size
        batch.append(path)
        if num_bytes >= _BATCH_BYTES:
            yield batch
            batch, num_bytes = [], 0
    if batch:
        yield batch


def _read_turns(paths: Iterable[Path]) -> pl.DataFrame:
    """The turns of some files as `_list_turns` gives them."""
    columns = ("id", "question_id", "question", "hinted", "baseline", "evidence.list.element.file")
    tables: list[pa.Table] = []
    for path in paths:
        with reading(path):
            tables.append(schemas.read_columns(pq.ParquetFile(path), columns, (*_TURN_COLUMNS, "hits.list.element.rank")))
    records = pl.DataFrame(pa.concat_tables(tables)).filter(~pl.col("hinted"), pl.col("baseline") == "")
    turn = pl.col("turns").struct
    return (
        records.explode("turns", empty_as_null=False)
        .select(
            "question_id",
            "question",
            *(turn.field(name) for name in _TURN_COLUMNS),
            trajectory_id="id",
            evidence_files=pl.col("evidence").list.eval(pl.element().struct.field("file")),
            num_hits=turn.field("hits").list.len(),
        )
        .cast(_TURN_SCHEMA)
        .select(_TURN_SCHEMA.names())
    )
