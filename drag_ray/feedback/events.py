"""Events that an endpoint keeps: searches with the pages that they showed, and what was said about them afterwards."""

from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from drag_ray.types import Evidence

Action = Literal["opened", "right", "wrong", "asked_again"]
CHAMPION_TEAM, CHALLENGER_TEAM, NO_TEAM = "A", "B", "-"
"""Who has put a page there that a trial has shown."""


@dataclass(frozen=True, slots=True)
class TrialPart:
    """The part of a search in a trial, by its id: a letter for each page, in their order, that says who has put it there; none
    where the champion's pages were shown, also because the challenger gave none in time (`has_failed`)."""

    trial: str
    teams: str = ""
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class ShownSearch:
    """A search that was answered, by the first characters of the search id that the client has, at a time in seconds since 1970.

    Client and session are pseudonyms of the address that asked and of the session that it named, empty for none. Question and
    query, which the model wrote, are empty where no text is kept; in a trial they are the champion's, as is the model."""

    id: str
    time: int
    client: str
    session: str
    question: str
    query: str
    model: str
    pages: tuple[Evidence, ...]
    part: TrialPart | None = None
    kind: Literal["search"] = "search"


@dataclass(frozen=True, slots=True)
class Mark:
    """A word of a client on a search: a page was opened, marked right or wrong, or the question was asked again by the `next`
    search. `rank` is the page's in what was shown; 0 for none."""

    search: str
    time: int
    client: str
    action: Action
    page: Evidence | None = None
    rank: int = 0
    next: str = ""
    kind: Literal["mark"] = "mark"


@dataclass(frozen=True, slots=True)
class ShadowRanks:
    """Ranks that the challenger of a trial would have given to the pages that a search has shown, in their order; 0 for none."""

    search: str
    time: int
    ranks: tuple[int, ...]
    kind: Literal["shadow"] = "shadow"


Event = ShownSearch | Mark | ShadowRanks
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
