"""The hint of a rollout that is shown the evidence page, and what such a rollout may not write.

STaR (Zelikman et al., Bootstrapping Reasoning With Reasoning, 2022) asks once more, with the answer as a hint, where no
sample solved a problem, and trains on the reply as if the hint had not been there. Here the hint is the evidence page, and
what is learned is the query that finds it. A reply of such a rollout may speak of the hint, so its reasoning is never
trained on; a query that repeats a passage of the page could not have been thought of without it, and is refused.
"""

import re

from drag_ray.search.normal_form import normalise
from drag_ray.types import Page

HINT_CHARS = 1200
"""characters of the page that are shown"""
QUOTED_WORDS = 6
"""words in a row that a query may not share with the page"""
QUOTE_PROBLEM = "the query is a quotation; search with a few key words"

_REQUEST = (
    "This page answers the question below:\n\n{text}\n\nWrite what finds it, as somebody would who has not seen the page: with "
    "words that the question suggests and the page holds. Do not mention the page, do not quote it, do not give the answer away."
)
_WORD = re.compile(r"\w+")


def write_hint(page: Page) -> str:
    """What stands before the question in the prompt."""
    return _REQUEST.format(text=page.text[:HINT_CHARS].strip())


def is_quotation(query: str, page: Page) -> bool:
    """True if a query shares `QUOTED_WORDS` words in a row with the page, whatever their case and what stands between them."""
    words = _WORD.findall(normalise(query).casefold())
    text = f" {' '.join(_WORD.findall(normalise(page.text).casefold()))} "
    starts = range(len(words) - QUOTED_WORDS + 1)
    return any(f" {' '.join(words[start : start + QUOTED_WORDS])} " in text for start in starts)
