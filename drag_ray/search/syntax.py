"""The meaning of a query, whatever language it was written in: a tree over the terms of the one text field.

A tree matches a set of pages in the plain Boolean sense, and ranks them by the BM25 of the terms, phrases included,
that it does not negate. Patterns count 1 for a page, however many of its terms they match.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """Pages that hold the term."""

    term: str


@dataclass(frozen=True, slots=True)
class Bag:
    """Pages that hold any of the terms; the score of each term is multiplied by its weight."""

    weights: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Phrase:
    """Pages that hold the terms at these positions of each other; two of them at least."""

    terms: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Pages that hold a term of this form: * stands for any characters, ? for one.

    `literal` is one more term that counts, for a prefix that is longer than the stem of its own word.
    """

    form: str
    literal: str = ""


@dataclass(frozen=True, slots=True)
class And:
    """Pages that every node matches."""

    nodes: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Pages that any node matches."""

    nodes: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Pages that the node does not match."""

    node: "Node"


@dataclass(frozen=True, slots=True)
class Boost:
    """The pages of the node, its score multiplied."""

    node: "Node"
    factor: float


Node = Term | Bag | Phrase | Pattern | And | Or | Not | Boost


def join(kind: type[And] | type[Or], nodes: list[Node]) -> Node | None:
    """The nodes under one `And` or `Or`; a single node stays as it is, and no node is None."""
    return kind(tuple(nodes)) if len(nodes) > 1 else next(iter(nodes), None)
