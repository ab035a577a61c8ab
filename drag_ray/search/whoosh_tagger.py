"""The first step of Whoosh's parser: text is tagged into syntax nodes, from left to right."""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

QUESTION_MARKS = "?\u055e\u061f\u1367"
OPERATORS = ("not", "and", "or", "andnot", "andmaybe", "require")
"""In the order in which they are applied."""
TEXT_KINDS = ("word", "wild", "phrase")
_MAX_SLOP = 16
# The order is that of Whoosh's taggers: at each place the first that fits wins.
_TAG = re.compile(
    rf"""(?<=\s)(?P<andnot>ANDNOT)(?=\s)
    |(?<=\s)(?P<andmaybe>ANDMAYBE)(?=\s)
    |(?P<every>\*:\*)
    |(?:^|(?<=\W))'(?P<quoted>.*?)'(?=\s|\]|[)}}]|$)
    |(?P<field>(?:\w+|\*):)
    |(?P<wild>[*{QUESTION_MARKS}])
    |(?P<quotation>"(?P<phrase>.*?)"(?:~(?P<slop>[1-9][0-9]*))?)
    |(?P<open>\()
    |(?P<close>\))
    |(?:^|(?<=[\s()]))(?P<not>NOT)(?=\s)
    |(?<=\s)(?P<and>AND)(?=\s)
    |(?<=\s)(?P<or>OR)(?=\s)
    |(?:^|(?<=\s))(?P<require>REQUIRE)(?=\s)
    |(?P<boost>\^(?P<factor>[0-9]*(?:\.[0-9]+)?)(?:$|(?=[ \t\r\n)])))
    |(?P<range>[\[{{])
    |(?P<space>\s+)""",
    re.VERBOSE,
)
_RANGE = re.compile(
    r"(?P<start>'[^']*?'\s+|[^\]}]+?(?=[Tt][Oo]))?[Tt][Oo](?P<end>\s+'[^']*?'|[^\]}]+?)?$",
    re.DOTALL,
)


class Limits(NamedTuple):
    """The ends of a range of terms; None where one is left open."""

    start: str | None
    end: str | None
    includes_start: bool
    includes_end: bool


@dataclass(slots=True)
class SyntaxNode:
    """A word, phrase, wildcard word, range, space, field name, boost, operator, or a group of nodes.

    `kind` is `group` for brackets and `and`, `or`, ... for what an operator made; an operator that is not yet applied is
    of kind `operator`, and `text` names it. `boost` multiplies the scores of the node or, for the kind `boost`, of the node
    before it; `slop` belongs to a phrase and `limits` to a range.
    """

    kind: str
    text: str = ""
    nodes: list["SyntaxNode"] = field(default_factory=list)
    boost: float = 1.0
    slop: int = 1
    limits: Limits | None = None

    @property
    def has_boost(self) -> bool:
        """Whether a boost may follow."""
        return self.kind in (*TEXT_KINDS, "prefix", "range", "group")


def tag(text: str) -> list[SyntaxNode]:
    """The nodes of a query in their order, brackets and operators included; what has no tag is a word."""
    nodes: list[SyntaxNode] = []
    done = position = 0
    while match := _TAG.search(text, position):
        node, end = _read_tag(text, match)
        if node is None:
            position = match.start() + 1
            continue
        if done < match.start():
            nodes.append(SyntaxNode("word", text[done : match.start()]))
        nodes.append(node)
        done = position = end
    if done < len(text):
        nodes.append(SyntaxNode("word", text[done:]))
    return nodes


def _read_tag(text: str, match: re.Match[str]) -> tuple[SyntaxNode | None, int]:
    """The node of a match and where it ends; None for a bracket that opens no range."""
    kind = match.lastgroup or ""
    found, end = match[0], match.end()
    if kind in OPERATORS:
        return SyntaxNode("operator", kind), end
    if kind == "range":
        return _read_range(text, match.start())
    if kind == "quoted":
        return SyntaxNode("word", match["quoted"]), end
    if kind == "quotation":
        return SyntaxNode("phrase", match["phrase"], slop=min(int(match["slop"] or 1), _MAX_SLOP)), end
    if kind == "boost":
        return SyntaxNode("boost", found, boost=float(match["factor"])) if match["factor"] else SyntaxNode("word", found), end
    return SyntaxNode(kind, found), end


def _read_range(text: str, start: int) -> tuple[SyntaxNode | None, int]:
    closing = re.compile(r"[\]}]").search(text, start)
    match = _RANGE.match(text[start + 1 : closing.start()]) if closing else None
    if closing is None or match is None:
        return None, start
    start_term = _read_limit(match["start"] and match["start"].rstrip())
    end_term = _read_limit(match["end"] and match["end"].lstrip())
    limits = Limits(start_term, end_term, text[start] == "[", closing[0] == "]")
    return SyntaxNode("range", limits=limits), closing.end()


def _read_limit(text: str | None) -> str | None:
    if text and text.startswith("'") and text.endswith("'"):
        text = text[1:-1]
    return text and text.lower()
