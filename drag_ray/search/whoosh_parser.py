"""The language of Whoosh's default query parser, so that its numbers can be compared: what a query of the syntax `whoosh` means.

It follows whoosh-reloaded 2.7.5, oddities included, in the steps of its parser: text is tagged into syntax nodes, then
brackets, wildcards, field names, boosts and operators are worked in, then the tree is normalised. Words are joined by and.

    rotor AND (tail OR main)   NOT, ANDNOT, ANDMAYBE and REQUIRE too; an operator needs a space on both sides
    "tail rotor"~3             each word at most 3 positions after the one before it
    maint*  CH-47?             a wildcard takes the whole word that it touches: the question mark at the end of a question too
    [alpha TO gamma]           terms in the order of the alphabet; {} leave out the ends
    rotor^2  'tail rotor'      a boost; one word with a space in it, which the analyzer splits all the same

Where it differs: no field but the text can be searched (`file:x` is the words file and x, as any unknown field is in
Whoosh), ranges that overlap are not merged, brackets more than `MAX_DEPTH` deep are passed over, and nothing raises.
"""

from drag_ray.search.analyzer import Analyzer
from drag_ray.search.syntax import Node
from drag_ray.search.whoosh_tagger import OPERATORS, QUESTION_MARKS, TEXT_KINDS, SyntaxNode, tag
from drag_ray.search.whoosh_tree import build_tree

MAX_DEPTH = 16
_TEXT_FIELD = "text:"


def parse_whoosh(text: str, analyzer: Analyzer) -> Node | None:
    """The meaning of a query; None if nothing searchable is in it."""
    group = _group_brackets(tag(text))
    _reject_boosts(group)
    _merge_wildcards(group)
    group = _apply_fields(group)
    group = _apply_boosts(_drop_spaces(group))
    _apply_operators(group)
    return build_tree(group, analyzer)


def _group_brackets(nodes: list[SyntaxNode]) -> SyntaxNode:
    stack = [SyntaxNode("group")]
    num_ignored = 0
    for node in nodes:
        if node.kind == "open" and len(stack) > MAX_DEPTH:
            num_ignored += 1
        elif node.kind == "open":
            stack.append(SyntaxNode("group"))
        elif node.kind == "close" and num_ignored:
            num_ignored -= 1
        elif node.kind == "close":
            if len(stack) > 1:
                closed = stack.pop()
                stack[-1].nodes.append(closed)
        else:
            stack[-1].nodes.append(node)
    top = stack[0]
    for unclosed in stack[1:]:
        top.nodes += unclosed.nodes
    return top.nodes[0] if len(top.nodes) == 1 and top.nodes[0].kind == "group" else top


def _reject_boosts(group: SyntaxNode) -> None:
    """Only at the top: a boost that follows nothing is a word."""
    for index, node in enumerate(group.nodes):
        if node.kind == "boost" and (index == 0 or not group.nodes[index - 1].has_boost):
            group.nodes[index] = SyntaxNode("word", node.text)


def _merge_wildcards(group: SyntaxNode) -> None:
    """Join each wildcard with the text before and after it."""
    merged: list[SyntaxNode] = []
    takes_next = False
    for node in group.nodes:
        if node.kind == "group":
            _merge_wildcards(node)
        after_text = bool(merged) and merged[-1].kind in TEXT_KINDS
        is_taken = takes_next and node.kind in TEXT_KINDS
        if is_taken or (node.kind == "wild" and after_text):
            merged[-1] = SyntaxNode("wild", merged[-1].text + node.text)
        else:
            merged.append(node)
        takes_next = node.kind == "wild" and not is_taken
    for node in merged:
        if node.kind == "wild" and len(node.text) > 1 and not any(char in node.text for char in QUESTION_MARKS):
            node.kind = "prefix" if node.text.find("*") == len(node.text) - 1 else "wild"
    group.nodes = merged


def _apply_fields(group: SyntaxNode) -> SyntaxNode:
    """Unknown field names are text again; the name of the text field is dropped before what it can apply to."""
    nodes: list[SyntaxNode] = []
    unknown: SyntaxNode | None = None
    for node in group.nodes:
        if node.kind == "field" and node.text != _TEXT_FIELD:
            unknown = node
            continue
        if unknown and node.kind in (*TEXT_KINDS, "prefix"):
            node.text = unknown.text + node.text
        elif unknown:
            nodes.append(SyntaxNode("word", unknown.text))
        unknown = None
        nodes.append(node)
    if unknown:
        nodes.append(SyntaxNode("word", unknown.text))
    applied: list[SyntaxNode] = []
    while nodes:
        node = nodes.pop()
        if node.kind == "field":
            node = SyntaxNode("word", node.text)
        elif node.kind == "group":
            node = _apply_fields(node)
        if nodes and node.kind != "space" and nodes[-1].kind == "field":
            nodes.pop()
        applied.append(node)
    return SyntaxNode("group", nodes=applied[::-1], boost=group.boost)


def _drop_spaces(group: SyntaxNode) -> SyntaxNode:
    nodes = [_drop_spaces(node) if node.kind == "group" else node for node in group.nodes if node.kind != "space"]
    return SyntaxNode("group", nodes=nodes, boost=group.boost)


def _apply_boosts(group: SyntaxNode) -> SyntaxNode:
    nodes: list[SyntaxNode] = []
    for node in group.nodes:
        if node.kind == "group":
            node = _apply_boosts(node)
        elif node.kind == "boost":
            if nodes and nodes[-1].has_boost:
                nodes[-1].boost = node.boost
                continue
            node = SyntaxNode("word", node.text)
        nodes.append(node)
    return SyntaxNode("group", nodes=nodes, boost=group.boost)


def _apply_operators(group: SyntaxNode) -> None:
    for operator in OPERATORS:
        index = 0
        while index < len(group.nodes):
            node = group.nodes[index]
            if node.kind == "operator" and node.text == operator:
                _apply(operator, group.nodes, index)
            else:
                index += 1
    for node in group.nodes:
        _apply_operators(node)


def _apply(operator: str, nodes: list[SyntaxNode], index: int) -> None:
    """Put the operator at `index` and its neighbours into a group; without the neighbours that it needs it is dropped."""
    if operator == "not":
        nodes[index : index + 2] = [SyntaxNode("not", nodes=[node]) for node in nodes[index + 1 : index + 2]]
    elif 0 < index < len(nodes) - 1:
        left, right = nodes[index - 1], nodes[index + 1]
        same_group = left.kind == operator or (operator == "and" and left.kind == "group")
        if operator in ("and", "or") and same_group:
            left.nodes.append(right)
            del nodes[index : index + 2]
        else:
            nodes[index - 1 : index + 2] = [SyntaxNode(operator, nodes=[left, right])]
    else:
        del nodes[index]
