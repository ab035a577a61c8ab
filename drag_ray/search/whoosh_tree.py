"""From the groups of a Whoosh query to its tree, put in order as Whoosh's `normalize` does it.

Two of its rules change what a query finds: a lone `*` in an and or an or swallows the other words there, and a binary
operator whose one side is only stop words gives its other side, `the ANDNOT rotor` included.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from drag_ray.search.analyzer import Analyzer
from drag_ray.search.query_parser import build_phrase
from drag_ray.search.syntax import And, Boost, Every, Maybe, Node, Not, Or, Pattern, Term, TermRange

if TYPE_CHECKING:
    from drag_ray.search.whoosh_parser import Mark

_NOTHING = Or(())
_COLLECTION = Every()
"""`*:*`, which takes the place of the and or the or that it stands in."""


@dataclass(frozen=True, slots=True)
class _AnyTerm(Every):
    """`*`, which swallows the words beside it."""


@dataclass(frozen=True, slots=True)
class _Binary:
    operator: str
    left: "_Tree"
    right: "_Tree"


_Tree = Node | _Binary


def build_tree(group: "Mark", analyzer: Analyzer) -> Node | None:
    """The tree of a group; None if nothing searchable is in it."""
    found = _convert(group, analyzer)
    ordered = _NOTHING if found is None else _order(found)
    return None if ordered == _NOTHING else _finish(ordered)


def _convert(mark: "Mark", analyzer: Analyzer) -> _Tree | None:
    """The tree as it was written; None where Whoosh has no query at all, which is not the same as one that finds nothing."""
    if mark.kind in ("group", "and", "or"):
        found = [_convert(part, analyzer) for part in mark.marks]
        nodes = tuple(part for part in found if part is not None)
        return _weigh(Or(nodes) if mark.kind == "or" else And(nodes), mark.weight)  # type: ignore[arg-type]
    if mark.kind == "not":
        child = _convert(mark.marks[0], analyzer) if mark.marks else None
        return None if child in (None, And(()), Or(())) else Not(child)  # type: ignore[arg-type]
    if mark.kind in ("andnot", "andmaybe", "require"):
        left, right = ([_convert(part, analyzer) for part in mark.marks] + [None, None])[:2]
        if left is None or right is None:
            return (right or _NOTHING) if left is None else left
        return _Binary(mark.kind, left, right)
    return _convert_leaf(mark, analyzer)


def _convert_leaf(mark: "Mark", analyzer: Analyzer) -> _Tree | None:
    if mark.kind == "every":
        return _COLLECTION
    if mark.kind == "phrase":
        phrase = build_phrase(mark.text, analyzer, mark.details)
        return _NOTHING if phrase is None else _weigh(phrase, mark.weight)
    if mark.kind == "range":
        return _weigh(_convert_range(*mark.details), mark.weight)
    if mark.kind in ("wild", "prefix"):
        return _weigh(_convert_pattern(mark.text.lower(), is_prefix=mark.kind == "prefix"), mark.weight)
    if mark.kind != "word":
        return None
    terms = tuple(_weigh(Term(term), mark.weight) for term in analyzer.analyze(mark.text))
    return And(terms) if len(terms) > 1 else next(iter(terms), None)


def _convert_range(start: str | None, end: str | None, includes_start: bool, includes_end: bool) -> Node:
    if not start and end in (None, "\uffff"):
        return _AnyTerm()
    if start == end and start is not None:
        return Term(start) if includes_start and includes_end else _NOTHING
    return TermRange(start or "", end, includes_start, includes_end)


def _convert_pattern(form: str, is_prefix: bool) -> Node:
    if form == "*":
        return _AnyTerm()
    if is_prefix:
        return Pattern(form.replace("[", "[[]"))
    return Pattern(form) if "*" in form or "?" in form else Term(form)


def _weigh(node: Node, weight: float) -> Node:
    """The node with a weight, which is the weight of each of its parts, as scores add up."""
    if weight == 1.0 or isinstance(node, Every):
        return node
    if isinstance(node, And | Or):
        return type(node)(tuple(_weigh(part, weight) for part in node.nodes))
    return Boost(node, weight)


def _order(tree: _Tree) -> _Tree:
    if isinstance(tree, And | Or):
        return _order_group(type(tree), [_order(part) for part in tree.nodes])
    if isinstance(tree, Not):
        child = _order(tree.node)
        return _NOTHING if child == _NOTHING else Not(child)  # type: ignore[arg-type]
    if isinstance(tree, _Binary):
        left, right = _order(tree.left), _order(tree.right)
        if left == _NOTHING or (right == _NOTHING and tree.operator == "require"):
            return _NOTHING
        return left if right == _NOTHING else _Binary(tree.operator, left, right)
    return tree


def _order_group(kind: type[And] | type[Or], ordered: list[_Tree]) -> _Tree:
    nodes: list[_Tree] = []
    for node in ordered:
        nodes += node.nodes if isinstance(node, kind) else [node]
    nodes = [node for node in dict.fromkeys(nodes) if node != _NOTHING]
    if _COLLECTION in nodes:
        return _COLLECTION
    if any(isinstance(node, _AnyTerm) for node in nodes):
        nodes = [node for node in nodes if isinstance(node, _AnyTerm) or not _is_text(node)]
    if not nodes:
        return _NOTHING
    return nodes[0] if len(nodes) == 1 else kind(tuple(nodes))  # type: ignore[arg-type]


def _is_text(tree: _Tree) -> bool:
    """Whether Whoosh sees that the whole tree asks the text field: it does not see through NOT."""
    if isinstance(tree, And | Or):
        return all(map(_is_text, tree.nodes))
    if isinstance(tree, _Binary):
        return _is_text(tree.left) and _is_text(tree.right)
    return not isinstance(tree, Not) and tree != _COLLECTION


def _finish(tree: _Tree) -> Node:
    """The tree in the words of `syntax`."""
    if isinstance(tree, _Binary):
        left, right = _finish(tree.left), _finish(tree.right)
        if tree.operator == "andmaybe":
            return Maybe(left, right)
        return And((left, Not(right) if tree.operator == "andnot" else Boost(right, 0.0)))
    if isinstance(tree, And | Or):
        return type(tree)(tuple(map(_finish, tree.nodes)))
    if isinstance(tree, Not):
        return Not(_finish(tree.node))
    return Every() if isinstance(tree, Every) else tree
