"""Queries that name an answer which only a hint could have told.

To learn such a query is to learn to make up answers. What the policy finds out by itself is its own to search for.
"""

import polars as pl

from drag_ray.process.quality import Filter
from drag_ray.search.normal_form import normalise

# Shorter answers ("5", "no") are part of a word by chance.
_MIN_ANSWER_CHARS = 3


def find(turns: pl.DataFrame) -> pl.Expr:
    """True for a query of a rollout with a hint that names an answer which its question does not hold."""
    hinted = turns.filter("hinted").select("query", "question", "answers")
    told = [
        any(_tells(*(normalise(text).casefold() for text in (answer, query, question))) for answer in answers)
        for query, question, answers in hinted.iter_rows()
    ]
    is_hinted = turns["hinted"]
    return pl.lit(is_hinted.scatter(is_hinted.arg_true(), told) if told else is_hinted)


def _tells(answer: str, query: str, question: str) -> bool:
    return len(answer) >= _MIN_ANSWER_CHARS and answer in query and answer not in question


FILTER = Filter(label="gives away a hint", find=find)
