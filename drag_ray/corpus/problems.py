"""Problems: whatever ends the reading of one record, page or file, set aside with its place."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, ParamSpec, TypeVar, get_args

from drag_ray.corpus.text import to_printable
from drag_ray.errors import ArtifactError, DataError, PageZeroError

Kind = Literal[
    "unknown_file",
    "attachment",
    "broken_file",
    "linked_file",
    "broken_page",
    "broken_record",
    "page_zero",
    "duplicate",
    "incomplete_question",
    "test_overlap",
    "doubtful_page",
    "unknown_document",
    "undescribed_document",
    "broken_value",
]
"""What was set aside: a file that nothing here reads, alone or within another; a file, a page of it, or a record of a table that
cannot be read; a link that leads out of the documents, or to one of them; a record of a page 0; a page or an id that was there
before; evidence that the corpus does not hold; a training question that overlaps with the test; metadata of a document that is
not there, and a value of them that is none of its column's type. Not set aside are a doubtful page, whose text layer does not
seem to be its text, and a document of which the metadata say nothing."""
_NOT_SET_ASIDE = ("doubtful_page", "undescribed_document")

_MAX_REASON_CHARS = 1_000
# These speak of this machine, its installation or its disk, not of what was read: with them the run ends.
_NOT_OF_THE_RECORD = (MemoryError, ImportError, ArtifactError)

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that was set aside: its place (`file:line`, a file, a page or a question), the reason and the kind.

    It can be written whatever it quotes: what no UTF-8 holds is escaped, and a long reason is cut.
    """

    place: str
    reason: str
    kind: Kind

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", to_printable(self.place))
        object.__setattr__(self, "reason", to_printable(self.reason[:_MAX_REASON_CHARS]))


def read_one(kind: Kind, place: str, read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Problem:
    """Error boundary around one record, page or file: the result of `read`, or the problem that ended it.

    The catch is broad because a damaged file makes libraries raise anything, and a list of it is never complete.
    """
    try:
        return read(*args, **kwargs)
    except _NOT_OF_THE_RECORD:
        raise
    except PageZeroError as error:
        return Problem(place, str(error), "page_zero")
    except DataError as error:
        return Problem(place, str(error).removeprefix(f"{place}: "), kind)
    except Exception as error:
        return Problem(place, f"cannot be read ({type(error).__name__}: {error}). Repair it or remove it.", kind)


def name_first(problems: Sequence[Problem]) -> str:
    """A sentence about the first problem, to follow another one; empty where there is none."""
    return f" First problem: {problems[0].place}: {problems[0].reason.removesuffix('.')}." if problems else ""


def count_problems(problems: Iterable[Problem]) -> dict[str, int]:
    """Counts for a summary: `set_aside` for all that was, and for each kind that occurs its own, as `broken_files`."""
    kinds = Counter(problem.kind for problem in problems)
    return {
        "set_aside": kinds.total() - sum(kinds[kind] for kind in _NOT_SET_ASIDE),
        **{f"{kind}s": kinds[kind] for kind in get_args(Kind) if kinds[kind]},
    }
