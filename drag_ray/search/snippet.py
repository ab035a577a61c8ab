"""The part of a page that a query is about: a window of its text with as many of the query's rare terms as fit."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from drag_ray.search.analyzer import Token
from drag_ray.search.query import match_pattern
from drag_ray.search.syntax import And, Bag, Boost, Node, Not, Or, Pattern, Phrase, Term

_WORD_END = re.compile(r"\s")
_ROUNDING = 1e-9
"""A window must weigh more than this above another one, since weights are added and taken off in another order."""


@dataclass(frozen=True, slots=True)
class Snippet:
    """A window of a page's text.

    `start` counts characters of the page before the window; `matches` are (start, end) of the matched words in the window.
    """

    file: str
    page_number: int
    text: str
    start: int
    matches: tuple[tuple[int, int], ...]


def match_terms(node: Node | None, terms: Collection[str]) -> set[str]:
    """The terms of a page that a query asks for; what it excludes does not count."""
    leaves = list(_read_leaves(node)) if node else []
    matched = set(terms).intersection(leaf for leaf in leaves if isinstance(leaf, str))
    listed = pl.Series(list(terms), dtype=pl.String)
    return matched.union(*(listed.filter(match_pattern(leaf, listed)) for leaf in leaves if isinstance(leaf, Pattern)))


def choose_window(text: str, matched: Sequence[Token], weigh: Callable[[str], float], max_chars: int) -> tuple[int, int]:
    """(start, end) of the window of at most `max_chars` characters whose distinct terms weigh most; the first of equals.

    Args:
        max_chars: at least 1.
    """
    weights = {term: weigh(term) for term in {token.term for token in matched}}
    start = end = last = 0
    best = weight = 0.0
    counts: Counter[str] = Counter()
    for first, token in enumerate(matched):
        while last < len(matched) and matched[last].end - token.start <= max_chars:
            entering = matched[last].term
            weight += 0.0 if counts[entering] else weights[entering]
            counts[entering] += 1
            last += 1
        if weight > best + _ROUNDING:
            best, start, end = weight, token.start, matched[last - 1].end
        if last > first:
            counts[token.term] -= 1
            weight -= 0.0 if counts[token.term] else weights[token.term]
        last = max(last, first + 1)
    spare = max(0, max_chars - (end - start))
    start = max(0, min(start - spare // 2, len(text) - max_chars))
    return _snap(text, start, min(len(text), start + max_chars), matched)


def _snap(text: str, start: int, end: int, matched: Sequence[Token]) -> tuple[int, int]:
    """Move the ends inwards to spaces, if they split words, but not into a matched word."""
    inside = [token for token in matched if start <= token.start and token.end <= end]
    latest = inside[0].start if inside else end
    earliest = inside[-1].end if inside else start
    if start > 0 and not text[start - 1].isspace() and (space := _WORD_END.search(text, start, latest)):
        start = space.end()
    if end < len(text) and not text[end].isspace():
        spaces = list(_WORD_END.finditer(text, earliest, end))
        end = spaces[-1].start() if spaces else end
    return start, end


def _read_leaves(node: Node) -> Iterator[str | Pattern]:
    match node:
        case Term(term):
            yield term
        case Bag(weights):
            yield from weights
        case Phrase(terms):
            yield from (term for _, term in terms)
        case Pattern(_, literal):
            yield node
            yield literal
        case And(nodes) | Or(nodes):
            for part in nodes:
                yield from _read_leaves(part)
        case Boost(part, factor):
            yield from _read_leaves(part) if factor else ()
        case Not():
            return
