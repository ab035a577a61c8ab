"""The reader of queries: what a model wrote becomes a Tantivy query, whatever it wrote.

Model text is data. It never reaches one of Tantivy's own query parsers: plain words are split into terms by the index's
analyzer, and the query language is read by the parser beside this file. Each term, phrase and pattern then searches
the text field by name, so nothing in a query can reach another field, raise, or crash the process.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl
from tantivy import Occur, Query, Schema, Searcher

from drag_ray.search.analyzer import Analyzer
from drag_ray.search.config import Operator, Syntax
from drag_ray.search.shards import TEXT
from drag_ray.search.syntax import And, Bag, Boost, Node, Not, Or, Pattern, Phrase, Term, join, parse_query
from drag_ray.search.weighted_words import read_weight

SCAN_S = 0.15e-6
"""Seconds to compare a term with a pattern. All of these are CPU times on one core of an AMD EPYC, rounded up."""
EXPANDED_S = 2e-6
"""Looking up a term that a pattern stands for."""
POSTING_S = 5e-9
"""Reading an entry of a term: that it is on a page."""
PHRASE_POSTING_S = 40e-9
"""Reading an entry of a term with its places on the page."""
HIT_S = 1e-6
"""Taking a page out of a ranking."""


class Budget:
    """The budget that is left for one query.

    Attributes:
        left_s: in seconds.
        is_exceeded: something did not fit and was left out.
    """

    def __init__(self, milliseconds: float) -> None:
        self.left_s = milliseconds / 1_000
        self.is_exceeded = False

    def spend(self, seconds: float) -> bool:
        """Take so much off, and True; if it does not fit, nothing, and False."""
        fits = seconds <= self.left_s
        self.left_s -= seconds if fits else 0.0
        self.is_exceeded |= not fits
        return fits


MAX_TERMS = 1_000_000
"""The commonest terms of an index, so many, are what patterns can stand for. Reading them takes 2 s when an index is opened."""
MAX_FORM_CHARS = 64
"""A longer pattern stands for its `literal` alone: each letter of a term may be compared with each of a pattern."""


class Vocabulary:
    """The terms of an index, the commonest first.

    Args:
        counted: each with the number of pages that hold it, in this order; at most `MAX_TERMS`.
    """

    def __init__(self, counted: Sequence[tuple[str, int]]) -> None:
        self._terms = pl.Series([term for term, _ in counted], dtype=pl.String)
        self._doc_freqs = pl.Series([doc_freq for _, doc_freq in counted], dtype=pl.Int64)

    def expand(self, node: Pattern, budget: Budget) -> list[str] | None:
        """The terms that a pattern stands for; None if the budget does not allow to find or to read them all."""
        if not budget.spend(len(self._terms) * SCAN_S):
            return None
        budget.is_exceeded |= len(self._terms) == MAX_TERMS
        matched = match_pattern(node, self._terms)
        cost_s = int(matched.sum()) * EXPANDED_S + int(self._doc_freqs.filter(matched).sum()) * POSTING_S
        return self._terms.filter(matched).to_list() if budget.spend(cost_s) else None


def match_pattern(pattern: Pattern, terms: pl.Series) -> pl.Series:
    """For each term whether it has the form of the pattern, or is its `literal`."""
    is_literal = (terms == pattern.literal) & bool(pattern.literal)
    if len(pattern.form) > MAX_FORM_CHARS:
        return is_literal
    regex = "".join({"*": ".*", "?": "."}.get(char) or re.escape(char) for char in pattern.form)
    return is_literal | terms.str.contains(f"^(?:{regex})$")


MAX_QUERY_CHARS = 2_000
"""A query is truncated before the word that goes over it: the cost of a query grows with its terms."""
MAX_DEPTH = 48
"""Nodes of a tree that lie deeper match nothing: Tantivy works through a tree by recursion."""
_MAX_BOOST = 1_000.0


def clean(text: str) -> str:
    """The text without lone surrogates, which the binding refuses."""
    return text if text.isascii() else text.encode("utf-8", "ignore").decode("utf-8")


def _truncate(text: str) -> str:
    """At most `MAX_QUERY_CHARS` characters, and no half word at the end."""
    return text if len(text) <= MAX_QUERY_CHARS else next(iter(text[:MAX_QUERY_CHARS].rsplit(maxsplit=1)), "")


def read_query(text: str, analyzer: Analyzer, syntax: Syntax, operator: Operator) -> Node | None:
    """The meaning of a query; None if nothing searchable is in it. A word that it says twice weighs twice."""
    if syntax == "query":
        return parse_query(clean(_truncate(text)), analyzer, operator)
    counts = read_words(text, analyzer)
    if operator == "or":
        return Bag(counts) if counts else None
    return join(And, [Term(term) if count == 1 else Boost(Term(term), count) for term, count in counts.items()])


class IndexReader(NamedTuple):
    """An open index: its fields, its postings, and its terms, which patterns stand for."""

    schema: Schema
    searcher: Searcher
    vocabulary: Vocabulary


def build_query(node: Node | None, reader: IndexReader, budget: Budget) -> Query:
    """The Tantivy query of the parts of a tree that the budget allows; None matches no page."""
    query = None if node is None else _Builder(reader, budget).build(node, MAX_DEPTH)
    return query or Query.empty_query()


def weigh_terms(weights: Mapping[str, float]) -> Node | None:
    """Terms joined by or; a page's score is the sum of each term's score times its weight."""
    cleaned: dict[str, float] = {}
    for term, weight in weights.items():
        cleaned[clean(term)] = cleaned.get(clean(term), 0.0) + min(weight, _MAX_BOOST)
    return Bag(cleaned) if cleaned else None


def read_words(text: str, analyzer: Analyzer) -> dict[str, float]:
    """The counts of each term in a text of plain words."""
    counts: dict[str, float] = {}
    for term in analyzer.analyze(clean(_truncate(text))):
        counts[term] = counts.get(term, 0.0) + 1.0
    return counts


def read_additions(text: str, analyzer: Analyzer) -> dict[str, float]:
    """The terms of words that may have a weight each, as in `prognosis^2, survival`; a word that is said twice weighs twice."""
    weights: dict[str, float] = {}
    for weighted in clean(_truncate(text)).split():
        word, factor = read_weight(weighted)
        for term in analyzer.analyze(word):
            weights[term] = weights.get(term, 0.0) + factor
    return {term: weight for term, weight in weights.items() if weight > 0}


def expand(weights: Mapping[str, float], addition: Node | None) -> Node | None:
    """Terms joined by or with what is added to them; a page's score is the sum of both."""
    own = weigh_terms(weights)
    if own is None or addition is None:
        return own or addition
    if isinstance(own, Bag) and isinstance(addition, Bag):
        terms = own.weights.keys() | addition.weights.keys()
        return Bag({term: own.weights.get(term, 0.0) + addition.weights.get(term, 0.0) for term in sorted(terms)})
    return Or((own, addition))


def read_weights(node: Node | None) -> Mapping[str, float] | None:
    """The terms of a bag of words with their weights, all above 0; None if the tree is anything else."""
    if isinstance(node, Bag):
        return node.weights if min(node.weights.values()) > 0 else None
    weights: dict[str, float] = {}
    for part in node.nodes if isinstance(node, Or) else (node,):
        term, weight = (part.node, min(part.factor, _MAX_BOOST)) if isinstance(part, Boost) else (part, 1.0)
        if not isinstance(term, Term) or weight <= 0:
            return None
        weights[term.term] = weights.get(term.term, 0.0) + weight
    return weights


class _Builder:
    """Builds the parts of a tree that the budget allows, cheap ones before others; None stands for one that is left out."""

    def __init__(self, reader: IndexReader, budget: Budget) -> None:
        self._schema = reader.schema
        self._searcher = reader.searcher
        self._vocabulary = reader.vocabulary
        self._budget = budget

    def build(self, node: Node, depth: int) -> Query | None:
        if depth == 0:
            return Query.empty_query()
        match node:
            case Term(term):
                return self._build_term(term)
            case Bag(weights):
                return self._join_or([self._boost(self._build_term(term), weight) for term, weight in weights.items()])
            case Phrase():
                return self._build_phrase(node)
            case Pattern():
                return self._build_expanded(node)
            case And(nodes):
                return self._build_and(nodes, depth - 1)
            case Or(nodes):
                return self._join_or([self.build(part, depth - 1) for part in sorted(nodes, key=_rate_cost)])
            case Not():
                return self._build_and((node,), depth - 1)
            case Boost(boosted, factor):
                return self._boost(self.build(boosted, depth - 1), min(factor, _MAX_BOOST))

    def _build_term(self, term: str) -> Query | None:
        if not self._budget.spend(self._searcher.doc_freq(TEXT, term) * POSTING_S):
            return None
        return Query.term_query(self._schema, TEXT, term, index_option="freq")

    def _build_every(self) -> Query | None:
        is_allowed = self._budget.spend(self._searcher.num_docs * POSTING_S)
        return Query.const_score_query(Query.all_query(), 0.0) if is_allowed else None

    def _boost(self, query: Query | None, factor: float) -> Query | None:
        return None if query is None else Query.boost_query(query, factor)

    def _join_or(self, queries: list[Query | None]) -> Query | None:
        built = [(Occur.Should, query) for query in queries if query is not None]
        return Query.boolean_query(built) if built else None

    def _build_and(self, nodes: tuple[Node, ...], depth: int) -> Query | None:
        parts = [
            (Occur.MustNot, self.build(node.node, depth)) if isinstance(node, Not) else (Occur.Must, self.build(node, depth))
            for node in sorted(nodes, key=_rate_cost)
        ]
        built = [(occur, query) for occur, query in parts if query is not None]
        if built and all(occur == Occur.MustNot for occur, _ in built):
            every = self._build_every()
            built = [*built, (Occur.Must, every)] if every else []
        return Query.boolean_query(built) if built else None

    def _build_phrase(self, node: Phrase) -> Query | None:
        terms = [term for _, term in node.terms]
        fewest = min(self._searcher.doc_freq(TEXT, term) for term in terms)  # only pages that hold all of them are looked at
        if not self._budget.spend(len(terms) * fewest * PHRASE_POSTING_S):
            return None
        return Query.phrase_query(self._schema, TEXT, list(node.terms))

    def _build_expanded(self, node: Pattern) -> Query | None:
        terms = self._vocabulary.expand(node, self._budget)
        return None if terms is None else Query.const_score_query(Query.term_set_query(self._schema, TEXT, terms), 1.0)


def _rate_cost(node: Node) -> int:
    """Words before groups before what stands for any number of words."""
    match node.node if isinstance(node, Not | Boost) else node:
        case Term() | Bag() | Phrase():
            return 0
        case Pattern():
            return 2
        case _:
            return 1
