"""How much there is to learn from a set of searches: the measures by which ways of sampling are compared."""

import polars as pl


def count_yields(searches: pl.DataFrame) -> dict[str, int]:
    """The yields of all searches of some questions.

    A preference pair is a query that found evidence within top_k and one that did not, asked in the same state; each distinct
    query counts once in its state. What the format stage makes of them is fewer, by its margin and its limits.

    Args:
        searches: columns question_id, state (what stands for the conversation before the query), query_key and found, which
            may be hashes; without searches that failed.

    Returns:
        questions_with_success, distinct_successful_queries (within their questions) and preference_pairs.
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
