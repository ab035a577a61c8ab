import itertools
import random

import polars as pl

from drag_ray.rollout.counts import count_yields


def build_searches(*rows: tuple[str, int, str, bool]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=["question_id", "state", "query_key", "found"], orient="row")


def test_nothing_yields_nothing() -> None:
    assert set(count_yields(build_searches(("q1", 1, "bad", False))).values()) == {0}
    assert set(count_yields(build_searches(("q1", 1, "bad", False)).clear()).values()) == {0}


def test_yields_are_those_of_a_plain_count() -> None:
    draw = random.Random(1)
    rows = [(f"q{draw.randrange(5)}", draw.randrange(3), draw.choice("abcdef")) for _ in range(200)]
    searches = [(question, state, query, ord(query) % (1 + int(question[1])) == 0) for question, state, query in rows]
    distinct = set(searches)
    pairs = [
        (one, other) for one, other in itertools.product(distinct, distinct) if one[:2] == other[:2] and one[3] and not other[3]
    ]
    assert count_yields(build_searches(*searches)) == {
        "questions_with_success": len({question for question, _, _, found in searches if found}),
        "distinct_successful_queries": len({(question, query) for question, _, query, found in searches if found}),
        "preference_pairs": len(pairs),
    }
