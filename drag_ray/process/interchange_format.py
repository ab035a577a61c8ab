"""A format of `process.interchange`."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from drag_ray.agent.config import AgentConfig
from drag_ray.corpus.problems import Problem
from drag_ray.errors import ConfigError, DataError
from drag_ray.process import interchange
from drag_ray.process.interchange import InterchangeName
from drag_ray.types import Evidence, Page, Trajectory
from drag_ray.variants import load_variant

ReadPage = Callable[[Evidence], Page]


@dataclass(frozen=True)
class Interchange:
    """An interchange format, as a module of `interchange` declares it in INTERCHANGE.

    Attributes:
        read: the trajectories of a file or folder, and a problem for each part of it that is none. DataError where there is
            nothing at all to read. None where nothing can be learned from what there is to read.
        write: writes trajectories into a file or folder, which is whole or absent, and returns how many. Where it `reads_pages`,
            it is also given what reads a page of the run's index.
        rebuilds: its records have no conversation; it is rebuilt for the agent of the options.
        refusal: the reason for which it does not read.
        has_orders: has a place for candidates that were put in order; without one, such rollouts are refused.
        convert: what comes in are no trajectories but questions with candidates; it writes documents and questions into a new
            folder, and returns counts.
    """

    read: Callable[[Path, AgentConfig], Iterator[Trajectory | Problem]] | None
    write: Callable[..., int]
    rebuilds: bool = False
    refusal: str = ""
    has_orders: bool = True
    reads_pages: bool = False
    convert: Callable[[Path, Path], dict[str, int]] | None = None


def keep_first(read: Iterable[tuple[str, Trajectory | Problem]]) -> Iterator[Trajectory | Problem]:
    """The items that were read of each place; in the place of a trajectory with the id of an earlier one a problem."""
    seen: set[str] = set()
    for place, item in read:
        if isinstance(item, Trajectory):
            if item.id in seen:
                item = Problem(place, f"id {item.id!r} comes again; the first one is kept", "duplicate")
            else:
                seen.add(item.id)
        yield item


def take_once(trajectories: Iterable[Trajectory], made: str) -> Iterator[Trajectory]:
    """The rollouts, each of another question. Raises DataError where one was asked more than once. `made`: the name of what is
    made of a rollout."""
    seen: set[str] = set()
    for trajectory in trajectories:
        if trajectory.question_id in seen:
            raise DataError(
                f"question {trajectory.question_id!r}: several rollouts, expected one {made} a question. Export those of "
                "a policy of the evaluation: --policy NAME."
            )
        seen.add(trajectory.question_id)
        yield trajectory


def load_interchange(name: InterchangeName) -> Interchange:
    """The format of a name. Raises ConfigError where there is none."""
    if name not in interchange.INTERCHANGES:
        raise ConfigError(f"format {name!r}: expected one of {', '.join(interchange.INTERCHANGES)}.")
    return load_variant(interchange, name).INTERCHANGE
