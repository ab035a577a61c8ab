"""Passages of pages that a model reads with a question: how the page begins, which often names its subject, and what it says
of the question."""

from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hit

_HEAD_CHARS = 120
"""of the page's first line, which stand before a part from further down"""


def cut_passage(searcher: Searcher, page: Hit | Evidence, question: str, max_chars: int) -> str:
    """A page's text; of a longer one its beginning and, on a line of its own, the part with most of the question's rare words.

    Args:
        searcher: the index.
        page: one of its pages.
        question: what somebody wants to know.
        max_chars: characters of the passage at most; 0 for the page as it is.

    Raises:
        SearchIndexError: the page is of another index.
    """
    text = searcher.text(page)
    if not max_chars or len(text) <= max_chars:
        return text
    head = _cut_at_word(text.lstrip().partition("\n")[0], min(_HEAD_CHARS, max_chars // 4))
    found = searcher.snippet(page, question, max_chars - len(head) - 1)
    in_beginning = found.start + len(found.text) <= max_chars
    return _cut_at_word(text, max_chars) if in_beginning else f"{head}\n{found.text}"


def _cut_at_word(text: str, max_chars: int) -> str:
    """As many words as fit in; of a word that alone does not, its beginning."""
    if len(text) <= max_chars:
        return text
    whole, space, _ = text[: max_chars + 1].rpartition(" ")
    return whole if space else text[:max_chars]
