"""From the syntax nodes of a Whoosh query to its tree, normalised as Whoosh's `normalize` does it.

Two of its rules change what a query finds: a lone `*` in an and or an or swallows the other words there, and a binary
operator whose one side is only stop words gives its other side, `the ANDNOT rotor` included.
"""

from dataclasses import dataclass
from typing import Literal

from drag_ray.search.analyzer import Analyzer
from drag_ray.search.normal_form import normalise
from drag_ray.search.query_parser import build_phrase
from drag_ray.search.syntax import And, Boost, Every, Maybe, Node, Not, Or, Pattern, Phrase, Term, TermRange
from drag_ray.search.whoosh_tagger import Limits, SyntaxNode


@dataclass(frozen=True, slots=True)
class _AnyTerm:
    """`*`, which swallows the words beside it."""


@dataclass(frozen=True, slots=True)
class _Group:
    operator: Literal["and", "or"]
    parts: tuple["_Tree", ...]


@dataclass(frozen=True, slots=True)
class _Negation:
    part: "_Tree"


@dataclass(frozen=True, slots=True)
class _Binary:
    operator: str
    left: "_Tree"
    right: "_Tree"


_Text = Term | Phrase | Pattern | TermRange
_Tree = _Text | Boost | Every | _AnyTerm | _Group | _Negation | _Binary

_NOTHING = _Group("or", ())
_COLLECTION = Every()
"""`*:*`, which takes the place of the and or the or that it stands in."""


def build_tree(group: SyntaxNode, analyzer: Analyzer) -> Node | None:
    """The tree of a group; None if nothing searchable is in it."""
    found = _convert(group, analyzer)
    normalised = _NOTHING if found is None else _normalise(found)
    return None if normalised == _NOTHING else _to_node(normalised)


def _convert(node: SyntaxNode, analyzer: Analyzer) -> _Tree | None:
    """The tree as it was written; None where Whoosh has no query at all, which is not the same as one that finds nothing."""
    parts = tuple(part for part in (_convert(child, analyzer) for child in node.nodes) if part is not None)
    match node.kind:
        case "group" | "and" | "or":
            return _boost(_Group("or" if node.kind == "or" else "and", parts), node.boost)
        case "not":
            return _Negation(parts[0]) if parts and not _is_empty(parts[0]) else None
        case "andnot" | "andmaybe" | "require":
            return _Binary(node.kind, *parts) if len(parts) == 2 else next(iter(parts), _NOTHING)
        case _:
            return _convert_leaf(node, analyzer)


def _is_empty(tree: _Tree) -> bool:
    return isinstance(tree, _Group) and not tree.parts


def _convert_leaf(node: SyntaxNode, analyzer: Analyzer) -> _Tree | None:
    if node.kind == "every":
        return _COLLECTION
    if node.kind == "phrase":
        phrase = build_phrase(node.text, analyzer, node.slop)
        return _NOTHING if phrase is None else _boost(phrase, node.boost)
    if node.limits:
        return _boost(_convert_range(node.limits), node.boost)
    if node.kind in ("wild", "prefix"):
        return _boost(_convert_pattern(normalise(node.text).lower(), is_prefix=node.kind == "prefix"), node.boost)
    if node.kind != "word":
        return None
    terms = tuple(_boost(Term(term), node.boost) for term in analyzer.analyze(node.text))
    return _Group("and", terms) if len(terms) > 1 else next(iter(terms), None)


def _convert_range(limits: Limits) -> _Tree:
    start, end = (limit and normalise(limit) for limit in (limits.start, limits.end))
    _, _, includes_start, includes_end = limits
    if not start and end in (None, "\uffff"):
        return _AnyTerm()
    if start == end and start is not None:
        return Term(start) if includes_start and includes_end else _NOTHING
    return TermRange(start or "", end, includes_start, includes_end)


def _convert_pattern(form: str, is_prefix: bool) -> _Tree:
    if form == "*":
        return _AnyTerm()
    if is_prefix:
        return Pattern(form.replace("[", "[[]"))
    return Pattern(form) if "*" in form or "?" in form else Term(form)


def _boost(tree: _Tree, factor: float) -> _Tree:
    """The tree with a boost, which is the boost of each of its parts, as scores add up."""
    if factor == 1.0:
        return tree
    match tree:
        case _Group():
            return _Group(tree.operator, tuple(_boost(part, factor) for part in tree.parts))
        case _Binary():
            return _Binary(tree.operator, _boost(tree.left, factor), _boost(tree.right, factor))
        case Every() | _AnyTerm() | _Negation():  # they add nothing to a score
            return tree
        case _:
            return Boost(tree, factor)


def _normalise(tree: _Tree) -> _Tree:
    match tree:
        case _Group():
            return _normalise_group(tree)
        case _Negation():
            part = _normalise(tree.part)
            return _NOTHING if part == _NOTHING else _Negation(part)
        case _Binary():
            left, right = _normalise(tree.left), _normalise(tree.right)
            if left == _NOTHING or (right == _NOTHING and tree.operator == "require"):
                return _NOTHING
            return left if right == _NOTHING else _Binary(tree.operator, left, right)
        case _:
            return tree


def _normalise_group(group: _Group) -> _Tree:
    parts: list[_Tree] = []
    for part in map(_normalise, group.parts):
        parts += part.parts if isinstance(part, _Group) and part.operator == group.operator else [part]
    parts = [part for part in dict.fromkeys(parts) if part != _NOTHING]
    if _COLLECTION in parts:
        return _COLLECTION
    if any(isinstance(part, _AnyTerm) for part in parts):
        parts = [part for part in parts if isinstance(part, _AnyTerm) or not _is_text(part)]
    if not parts:
        return _NOTHING
    return parts[0] if len(parts) == 1 else _Group(group.operator, tuple(parts))


def _is_text(tree: _Tree) -> bool:
    """Whether Whoosh sees that the whole tree searches the text field: it does not see through NOT."""
    match tree:
        case _Group():
            return all(map(_is_text, tree.parts))
        case _Binary():
            return _is_text(tree.left) and _is_text(tree.right)
        case _:
            return not isinstance(tree, _Negation) and tree != _COLLECTION


def _to_node(tree: _Tree) -> Node:
    match tree:
        case _Group():
            parts = tuple(map(_to_node, tree.parts))
            return And(parts) if tree.operator == "and" else Or(parts)
        case _Negation():
            return Not(_to_node(tree.part))
        case _Binary():
            left, right = _to_node(tree.left), _to_node(tree.right)
            if tree.operator == "andmaybe":
                return Maybe(left, right)
            return And((left, Not(right) if tree.operator == "andnot" else Boost(right, 0.0)))
        case _AnyTerm():
            return Every()
        case _:
            return tree
