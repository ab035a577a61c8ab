"""The meaning of a query, whatever language it was written in: a tree over the terms of the one text field.

A tree matches a set of pages in the plain Boolean sense, and ranks them by the BM25 of the terms, phrases included,
that it does not negate. Patterns count 1 for a page, however many of its terms they match.

The query language, the syntax `query`:

    rotor speed            words, joined by the operator of the index
    "tail rotor"           a phrase: these words next to each other
    rotor AND NOT tail     AND binds closer than OR; NOT applies to what follows it
    (rotor OR blade) oil   brackets group
    maint*  *craft  wom?n  * stands for any letters and digits, ? inside a word for one of them

A word that the analyzer splits into several (`CH-47`) needs all of its parts under AND and NOT; elsewhere the operator
joins them. NOT beside OR, or between words that are joined by or, excludes from the whole group: `rotor blade NOT tail`
are the pages with rotor or blade and without tail. A group of nothing but NOT matches all other pages.

Everything else is punctuation, and no text is wrong: an operator without its word, a bracket or a quote without its
partner, brackets more than `MAX_DEPTH` deep, and a wildcard without a letter are passed over. `and`, `or` and `not` in
lower case are words. Patterns match the terms of the index, which for a language are stems.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from drag_ray.search.analyzer import Analyzer
from drag_ray.search.config import Operator
from drag_ray.search.normal_form import normalise


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


MAX_DEPTH = 16
_TOKEN = re.compile(r'"(?P<phrase>[^"]*)"|(?P<bracket>[()])|(?P<word>[^\s()"]+)')
_PIECE = re.compile(r"(?:[^\W_]|[*?])+")
_KIND = {"or": Or, "and": And}


def parse_query(text: str, analyzer: Analyzer, operator: Operator) -> Node | None:
    """The meaning of a query; None if nothing searchable is in it."""
    return _Parser(analyzer, operator).parse(text)


@dataclass(slots=True)
class _Operand:
    """The nodes of one word, phrase or group, and whether it is negated."""

    nodes: list[Node]
    negated: bool


@dataclass(slots=True)
class _Group:
    """An open bracket: alternatives, each a list of operands joined by AND, and how the next operand is joined and negated."""

    alternatives: list[list[_Operand]] = field(default_factory=list)
    connector: str = ""
    negated: bool = False


class _Parser:
    def __init__(self, analyzer: Analyzer, operator: Operator) -> None:
        self._analyzer = analyzer
        self._operator: Operator = operator
        self._open = [_Group()]

    def parse(self, text: str) -> Node | None:
        num_ignored = 0
        for match in _TOKEN.finditer(text):
            if match["bracket"] == "(":
                if len(self._open) > MAX_DEPTH:
                    num_ignored += 1
                else:
                    self._open.append(_Group())
            elif match["bracket"] == ")":
                if num_ignored:
                    num_ignored -= 1
                elif len(self._open) > 1:
                    self._close()
            elif match["phrase"] is not None:
                self._add(self._read_phrase(match["phrase"]))
            else:
                self._take_word(match["word"])
        while len(self._open) > 1:
            self._close()
        return self._finish(self._open[0])

    def _take_word(self, word: str) -> None:
        group = self._open[-1]
        if word == "NOT":
            group.negated = not group.negated
        elif word in ("AND", "OR"):
            group.connector = word
        else:
            self._add(list(self._read_word(word)))

    def _close(self) -> None:
        node = self._finish(self._open.pop())
        self._add([node] if node else [])

    def _add(self, nodes: list[Node]) -> None:
        """Join an operand by the connector before it. An operand without a term takes its connector with it."""
        group = self._open[-1]
        if nodes:
            operand = _Operand(nodes, group.negated)
            connector = group.connector or self._operator.upper()
            if connector == "AND" and group.alternatives:
                group.alternatives[-1].append(operand)
            else:
                group.alternatives.append([operand])
        group.connector, group.negated = "", False

    def _finish(self, group: _Group) -> Node | None:
        wanted: list[Node] = []
        excluded: list[Node] = []
        for operands in group.alternatives:
            if all(operand.negated for operand in operands):
                excluded += [self._to_node(operand, alone=False) for operand in operands]
            else:
                nodes = [self._to_node(operand, alone=len(operands) == 1) for operand in operands]
                wanted.append(join(And, nodes) or nodes[0])
        union = join(Or, wanted)
        return join(And, [union, *excluded] if union else excluded)

    def _to_node(self, operand: _Operand, alone: bool) -> Node:
        kind = _KIND[self._operator] if alone and not operand.negated else And
        node = join(kind, operand.nodes)
        assert node is not None
        return Not(node) if operand.negated else node

    def _read_phrase(self, text: str) -> list[Node]:
        """The phrase of a text's words; a single word is a term."""
        tokens = self._analyzer.locate(text)
        if len(tokens) < 2:
            return [Term(token.term) for token in tokens]
        return [Phrase(tuple((token.position - tokens[0].position, token.term) for token in tokens))]

    def _read_word(self, word: str) -> Iterator[Node]:
        if "*" not in word and "?" not in word:
            yield from map(Term, self._analyzer.analyze(word))
            return
        for piece in _PIECE.findall(normalise(word)):
            form = piece.rstrip("?").lower()
            letters = form.replace("*", "").replace("?", "")
            if letters == form:
                yield from map(Term, self._analyzer.analyze(form))
            elif letters:
                yield Pattern(form, self._read_literal(form))

    def _read_literal(self, form: str) -> str:
        """The term of a prefix's own word: `rotors*` also means the stem rotor, which the form itself would miss."""
        terms = self._analyzer.analyze(form[:-1]) if form.find("*") == len(form) - 1 and "?" not in form else []
        return terms[0] if len(terms) == 1 else ""
