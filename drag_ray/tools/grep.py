"""Exact words, or a pattern, in one file.

The pattern goes to the regex engine of Rust (through Polars), whose time is linear in the text: it never tracks back, and refuses
what would need it. What a pattern may hold is limited too, as a large automaton makes each character dear, and the text goes in
by pieces, so that the time is looked at in between.
"""

import re
import time
from collections.abc import Iterator

import polars as pl
from pydantic import Field

from drag_ray.errors import ToolError
from drag_ray.search.normal_form import align, normalise
from drag_ray.tools.function import Arguments
from drag_ray.tools.observation import Observation
from drag_ray.tools.tool import Tool
from drag_ray.tools.workspace import Workspace

MAX_LINES = 30
_LINE_CHARS = 240
_BEFORE_CHARS = 80
"""of a long line that are shown before what was found"""
_PIECE_CHARS = 20_000
_CHUNK_CHARS = 100_000
_MAX_REPEATS = 50
_BUDGET_S = 5.0
_Line = tuple[str, str | None]
"""A line and, where it is another one, its normal form."""
_REPEATS = re.compile(r"\{(\d*)(?:,(\d*))?\}")


class GrepArguments(Arguments):
    """The words to find, and a file."""

    file: str
    """File to look through, as a search names it."""
    text: str = Field(min_length=1, max_length=200)
    """Words to find exactly as they stand, in upper or lower case."""
    is_pattern: bool = False
    """Whether the text is a regular expression."""


def grep(arguments: GrepArguments, workspace: Workspace) -> Observation:
    """The lines of a file that hold some words, with their pages. Raises ToolError where the pattern is none, or asks for too
    much, or the collection does not have the file."""
    pattern = _to_pattern(arguments)
    lines: list[str] = []
    num_found, seen, is_whole = 0, set[int](), True
    deadline = time.monotonic() + _BUDGET_S
    file = workspace.resolve_file(arguments.file)
    chunks = ((page, chunk) for page in workspace.pages.read_file(file) for chunk in _cut_lines(page.text))
    for page, chunk in chunks:
        seen.add(page.page_number)
        is_whole = time.monotonic() < deadline
        if not is_whole:
            break
        found = [f"{page.file}#{page.page_number}: {line}" for line in _find_lines(chunk, pattern)]
        num_found += len(found)
        lines += found[: MAX_LINES - len(lines)]
    if not seen:
        raise ToolError(f"there is no file {arguments.file[:200]!r}; give the name as a search shows it")
    return Observation("\n".join([_describe(arguments, num_found, len(seen), is_whole), *lines]))


def _to_pattern(arguments: GrepArguments) -> str:
    """A pattern of Rust's that finds the words whatever their case."""
    if not arguments.is_pattern:
        # Blanks within the words stand for any white space; at their ends they are not meant.
        words = [re.escape(word) for word in normalise(arguments.text).split()]
        if not words:
            raise ToolError("grep: the text is blank")
        return r"(?i)" + r"\s+".join(words)
    for found in _REPEATS.finditer(arguments.text):
        if max(int(number or 0) for number in found.groups()) > _MAX_REPEATS:
            raise ToolError(f"grep: {found[0]} repeats more than {_MAX_REPEATS} times")
    if len(_REPEATS.findall(arguments.text)) > 2:
        raise ToolError("grep: the pattern counts repetitions more than twice")
    return f"(?i){arguments.text}"


def _cut_lines(text: str) -> Iterator[tuple[_Line, ...]]:
    """The lines of a text, very long ones in pieces, so many at once that they take no second."""
    lines = (line[start : start + _PIECE_CHARS] for line in text.split("\n") for start in range(0, len(line), _PIECE_CHARS))
    chunk: list[_Line] = []
    num_chars = 0
    for line in lines:
        form = normalise(line)
        chunk.append((line, None if form == line else form))
        num_chars += len(line) + len(form)
        if num_chars > 2 * _CHUNK_CHARS:
            yield tuple(chunk)
            chunk, num_chars = [], 0
    yield tuple(chunk)


def _find_lines(lines: tuple[_Line, ...], pattern: str) -> Iterator[str]:
    """The lines with a match as they stand or in their normal form, each as far as it is shown."""
    texts = pl.DataFrame(lines, {"line": pl.String, "form": pl.String}, orient="row")
    try:
        found = texts.filter(pl.any_horizontal(pl.all().str.contains(pattern)))
        matched = found.select(pl.all().str.extract(f"({pattern})", 1))
    except pl.exceptions.PolarsError as error:
        raise ToolError(f"grep: not a pattern that can be searched for: {_first_line(error)}") from None
    for (line, form), (match, match_of_form) in zip(found.rows(), matched.rows(), strict=True):
        place = 0
        if len(line) > _LINE_CHARS:
            place = line.find(match) if match is not None else align(line).starts[form.find(match_of_form)]
        start = max(0, place - _BEFORE_CHARS)
        shown = line[start : start + _LINE_CHARS].strip()
        yield f"{'…' if start else ''}{shown}{'…' if start + _LINE_CHARS < len(line) else ''}"


def _describe(arguments: GrepArguments, num_found: int, num_pages: int, is_whole: bool) -> str:
    where = f"{arguments.file}, {num_pages:,} page{'s' * (num_pages != 1)}"
    shown = f", the first {MAX_LINES} are shown" if num_found > MAX_LINES else ""
    cut = "; it took too long, so that only these pages were looked through" if not is_whole else ""
    count = f"{num_found:,} line{'s' * (num_found != 1)}" if num_found else "No line"
    return f"{count} with {arguments.text!r} in {where}{shown}{cut}{':' if num_found else '.'}"


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if line.startswith("error:")), lines[0] if lines else "unknown")[:200]


TOOL = Tool(
    name="grep",
    description="Find exact words in one file: the lines that hold them, with their pages.",
    arguments=GrepArguments,
    run=grep,
)
