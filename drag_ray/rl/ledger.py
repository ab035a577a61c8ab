"""The ledger of a run of reinforcement learning: which questions were drawn for which step, and what came of the steps.

A line is written before what it announces is begun (`drawn`) or once what it tells is on the disk (`trained`, `validated`). What
a step rolls out and with which policy follows from it, so a run that is killed anywhere goes on as it would have.
"""

import random
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from drag_ray.errors import ArtifactError
from drag_ray.storage.appended_lines import append_line, read_lines

LEDGER_NAME = "steps.jsonl"


class Entry(TypedDict):
    """A line. `policy` is the step after which the policy was as it rolls the questions out, `next_place` where the order of all
    questions goes on (see `draw_next`)."""

    event: Literal["drawn", "trained", "validated"]
    step: int
    policy: NotRequired[int]
    questions: NotRequired[list[str]]
    next_place: NotRequired[int]
    figures: NotRequired[dict[str, Any]]


class StepLedger:
    """Keeps a ledger. Raises ArtifactError where a whole line of it cannot be read; half of one is that of a killed process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._entries = read_lines(path, TypeAdapter(Entry))
        if path.is_file() and path.read_bytes().count(b"\n") > len(self._entries):
            raise ArtifactError(
                f"{path}: a line is not what was written, and without it nobody knows what was drawn and learned. Restore the "
                f"file, or remove {path.parent} to begin anew."
            )

    def add(self, entry: Entry) -> None:
        """Write a line. It is on the disk then."""
        append_line(self._path, entry)
        self._entries.append(entry)

    @property
    def num_drawn(self) -> int:
        """Questions drawn so far, in all steps."""
        return sum(len(entry.get("questions", ())) for entry in self._entries)

    @property
    def next_place(self) -> int:
        """The place of the order of all questions at which the next ones are drawn."""
        return max((entry.get("next_place", 0) for entry in self._entries), default=0)

    def find_questions(self, step: int) -> list[str]:
        """The questions drawn for a step, in their order."""
        return [name for entry in self._list("drawn", step) for name in entry.get("questions", ())]

    def count_draws(self, step: int) -> int:
        """The number of times that questions were drawn for a step."""
        return len(self._list("drawn", step))

    def find_policy(self, step: int) -> int | None:
        """The policy that rolls a step out; None before that is begun."""
        return next((entry.get("policy") for entry in self._list("drawn", step)), None)

    def read_figures(self, event: Literal["trained", "validated"]) -> dict[int, dict[str, Any]]:
        """The figures of the steps that are trained, or validated."""
        return {entry["step"]: entry.get("figures", {}) for entry in self._entries if entry["event"] == event}

    def _list(self, event: str, step: int) -> list[Entry]:
        return [entry for entry in self._entries if (entry["event"], entry["step"]) == (event, step)]


def draw_next(names: Sequence[str], seed: int, start: int, number: int, taken: Collection[str] = ()) -> tuple[list[str], int]:
    """The next names of an endless order, in which all of them come once, in an order drawn anew, before any comes again.

    Names that are taken, or were drawn a moment ago where a new order begins, are passed over. Returns the names, and the place
    at which the order goes on.

    Args:
        names: each once.
        seed: of the order.
        start: place in the order.
        number: wanted; fewer come where there are no others.
        taken: names that must not come.
    """
    drawn, place = list[str](), start
    orders = dict[int, list[str]]()
    while len(drawn) < number and place < start + 2 * len(names):  # all of them stand there
        epoch, place_in_epoch = divmod(place, len(names))
        if epoch not in orders:
            orders[epoch] = random.Random(f"{seed} {epoch}").sample(names, len(names))
        name = orders[epoch][place_in_epoch]
        drawn += [] if name in drawn or name in taken else [name]
        place += 1
    return drawn, place
