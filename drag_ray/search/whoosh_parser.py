"""The language of Whoosh's default query parser, so that its numbers can be compared: what a query of the syntax `whoosh` means.

It follows whoosh-reloaded 2.7.5, oddities included, in the steps of its parser: marks are tagged from left to right, then
brackets, wildcards, field names, weights and operators are worked in, then the tree is put in order. Words are joined by and.

    rotor AND (tail OR main)   NOT, ANDNOT, ANDMAYBE and REQUIRE too; an operator needs a space on both sides
    "tail rotor"~3             each word at most 3 places after the one before it
    maint*  CH-47?             a wildcard takes the whole word that it touches: the question mark at the end of a question too
    [alpha TO gamma]           terms in the order of the alphabet; {} leave out the ends
    rotor^2  'tail rotor'      a weight; one word with a space in it, which the analyzer cuts all the same

Where it differs: no field but the text can be asked (`file:x` is the words file and x, as any unknown field is in
Whoosh), ranges that overlap are not merged, brackets more than `MAX_DEPTH` deep are passed over, and nothing raises.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from drag_ray.search.analyzer import Analyzer
from drag_ray.search.syntax import Node
from drag_ray.search.whoosh_tree import build_tree

MAX_DEPTH = 16
QUESTION_MARKS = "?\u055e\u061f\u1367"
_TEXT_FIELD = "text"
_MAX_SLOP = 16
# The order is that of Whoosh's taggers: at each place the first that fits wins.
_MARK = re.compile(
    rf"""(?<=\s)(?P<andnot>ANDNOT)(?=\s)
    |(?<=\s)(?P<andmaybe>ANDMAYBE)(?=\s)
    |(?P<every>\*:\*)
    |(?:^|(?<=\W))'(?P<quoted>.*?)'(?=\s|\]|[)}}]|$)
    |(?P<field>(?P<name>\w+|\*):)
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
_OPERATORS = ("not", "and", "or", "andnot", "andmaybe", "require")
"""In the order in which they are applied."""
_TEXTS = ("word", "wild", "phrase")


@dataclass(slots=True)
class Mark:
    """A piece of a query: a word, phrase, wildcard word, range, space, field name, weight, operator, or a group of marks.

    `kind` is `group` for brackets and `and`, `or`, ... for what an operator made; an operator that is not yet applied is
    of kind `operator`. `details` holds the slop of a phrase, the factor of a weight, and the ends of a range.
    """

    kind: str
    text: str = ""
    details: Any = None
    marks: list["Mark"] = field(default_factory=list)
    weight: float = 1.0

    @property
    def has_weight(self) -> bool:
        return self.kind in (*_TEXTS, "prefix", "range", "group")


def parse_whoosh(text: str, analyzer: Analyzer) -> Node | None:
    """The meaning of a query; None if nothing searchable is in it."""
    group = _nest(_tag(text))
    _place_weights(group)
    _take_wildcards(group)
    group = _take_fields(group)
    group = _take_weights(_drop_spaces(group))
    _apply_operators(group)
    return build_tree(group, analyzer)


def _tag(text: str) -> list[Mark]:
    marks: list[Mark] = []
    done = place = 0
    while match := _MARK.search(text, place):
        mark, end = _read_mark(text, match)
        if mark is None:
            place = match.start() + 1
            continue
        if done < match.start():
            marks.append(Mark("word", text[done : match.start()]))
        marks.append(mark)
        done = place = end
    if done < len(text):
        marks.append(Mark("word", text[done:]))
    return marks


def _read_mark(text: str, match: re.Match[str]) -> tuple[Mark | None, int]:
    """The mark of a match and where it ends; no mark for a bracket that opens no range."""
    kind = match.lastgroup or ""
    found, end = match[0], match.end()
    if kind in _OPERATORS:
        return Mark("operator", kind), end
    if kind == "range":
        return _read_range(text, match.start())
    if kind == "quoted":
        return Mark("word", match["quoted"]), end
    if kind == "field":
        return Mark("field", found, match["name"]), end
    if kind == "quotation":
        return Mark("phrase", match["phrase"], min(int(match["slop"] or 1), _MAX_SLOP)), end
    if kind == "boost":
        return (Mark("boost", found, float(match["factor"])) if match["factor"] else Mark("word", found)), end
    return Mark(kind, found), end


def _read_range(text: str, start: int) -> tuple[Mark | None, int]:
    closing = re.compile(r"[\]}]").search(text, start)
    match = _RANGE.match(text[start + 1 : closing.start()]) if closing else None
    if closing is None or match is None:
        return None, start
    start_term = _read_end(match["start"] and match["start"].rstrip())
    end_term = _read_end(match["end"] and match["end"].lstrip())
    return Mark("range", "", (start_term, end_term, text[start] == "[", closing[0] == "]")), closing.end()


def _read_end(text: str | None) -> str | None:
    if text and text.startswith("'") and text.endswith("'"):
        text = text[1:-1]
    return text and text.lower()


def _nest(marks: list[Mark]) -> Mark:
    stack = [Mark("group")]
    num_ignored = 0
    for mark in marks:
        if mark.kind == "open" and len(stack) > MAX_DEPTH:
            num_ignored += 1
        elif mark.kind == "open":
            stack.append(Mark("group"))
        elif mark.kind == "close" and num_ignored:
            num_ignored -= 1
        elif mark.kind == "close":
            if len(stack) > 1:
                closed = stack.pop()
                stack[-1].marks.append(closed)
        else:
            stack[-1].marks.append(mark)
    top = stack[0]
    for unclosed in stack[1:]:
        top.marks += unclosed.marks
    return top.marks[0] if len(top.marks) == 1 and top.marks[0].kind == "group" else top


def _place_weights(group: Mark) -> None:
    """Only at the top: a weight that follows nothing is a word."""
    for place, mark in enumerate(group.marks):
        if mark.kind == "boost" and (place == 0 or not group.marks[place - 1].has_weight):
            group.marks[place] = Mark("word", mark.text)


def _take_wildcards(group: Mark) -> None:
    """Join each wildcard with the text before and after it."""
    joined: list[Mark] = []
    takes_next = False
    for mark in group.marks:
        if mark.kind == "group":
            _take_wildcards(mark)
        after_text = bool(joined) and joined[-1].kind in _TEXTS
        is_taken = takes_next and mark.kind in _TEXTS
        if is_taken or (mark.kind == "wild" and after_text):
            joined[-1] = Mark("wild", joined[-1].text + mark.text)
        else:
            joined.append(mark)
        takes_next = mark.kind == "wild" and not is_taken
    for mark in joined:
        if mark.kind == "wild" and len(mark.text) > 1 and not any(char in mark.text for char in QUESTION_MARKS):
            mark.kind = "prefix" if mark.text.find("*") == len(mark.text) - 1 else "wild"
    group.marks = joined


def _take_fields(group: Mark) -> Mark:
    """Unknown field names are text again; the name of the text field is dropped before what it can apply to."""
    marks: list[Mark] = []
    unknown: Mark | None = None
    for mark in group.marks:
        if mark.kind == "field" and mark.details != _TEXT_FIELD:
            unknown = mark
            continue
        if unknown and mark.kind in (*_TEXTS, "prefix"):
            mark.text = unknown.text + mark.text
        elif unknown:
            marks.append(Mark("word", unknown.text))
        unknown = None
        marks.append(mark)
    if unknown:
        marks.append(Mark("word", unknown.text))
    taken: list[Mark] = []
    while marks:
        mark = marks.pop()
        if mark.kind == "field":
            mark = Mark("word", mark.text)
        elif mark.kind == "group":
            mark = _take_fields(mark)
        if marks and mark.kind != "space" and marks[-1].kind == "field":
            marks.pop()
        taken.append(mark)
    return Mark("group", marks=taken[::-1], weight=group.weight)


def _drop_spaces(group: Mark) -> Mark:
    marks = [_drop_spaces(mark) if mark.kind == "group" else mark for mark in group.marks if mark.kind != "space"]
    return Mark("group", marks=marks, weight=group.weight)


def _take_weights(group: Mark) -> Mark:
    marks: list[Mark] = []
    for mark in group.marks:
        if mark.kind == "group":
            mark = _take_weights(mark)
        elif mark.kind == "boost":
            if marks and marks[-1].has_weight:
                marks[-1].weight = mark.details
                continue
            mark = Mark("word", mark.text)
        marks.append(mark)
    return Mark("group", marks=marks, weight=group.weight)


def _apply_operators(group: Mark) -> None:
    for operator in _OPERATORS:
        place = 0
        while place < len(group.marks):
            mark = group.marks[place]
            if mark.kind == "operator" and mark.text == operator:
                _apply(operator, group.marks, place)
            else:
                place += 1
    for mark in group.marks:
        _apply_operators(mark)


def _apply(operator: str, marks: list[Mark], place: int) -> None:
    """Put the operator at `place` and its neighbours into a group; without the neighbours that it needs it is dropped."""
    if operator == "not":
        marks[place : place + 2] = [Mark("not", marks=[mark]) for mark in marks[place + 1 : place + 2]]
    elif 0 < place < len(marks) - 1:
        left, right = marks[place - 1], marks[place + 1]
        same_group = left.kind == operator or (operator == "and" and left.kind == "group")
        if operator in ("and", "or") and same_group:
            left.marks.append(right)
            del marks[place : place + 2]
        else:
            marks[place - 1 : place + 2] = [Mark(operator, marks=[left, right])]
    else:
        del marks[place]
