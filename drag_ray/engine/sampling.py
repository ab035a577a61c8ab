"""Sampling presets: how a reply is drawn. All but `full`, the model's own distribution, are the DRAG collector's.

Where numbers can be given they are a preset whose name is what they are: `0.8:0.95:1.1`.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of one draw; temperature 0 takes the likeliest token each time."""

    temperature: float
    top_p: float
    repetition_penalty: float = 1.0


_NUMBERS = re.compile(r"(\d+(?:\.\d+)?):([01](?:\.\d+)?)(?::(\d+(?:\.\d+)?))?")


class _Presets(dict[str, Sampling]):
    """The presets by their names. Those of numbers are found too, and not listed."""

    def find(self, name: str) -> Sampling | None:
        """The preset; None for a name that is none."""
        found = _NUMBERS.fullmatch(name)
        numbers = [float(number or 1) for number in found.groups()] if found else []
        return Sampling(*numbers) if numbers and 0 < numbers[1] <= 1 and numbers[2] else self.get(name)

    def __missing__(self, name: str) -> Sampling:
        if sampling := self.find(name):
            return sampling
        raise KeyError(name)


PRESETS = _Presets(
    greedy=Sampling(temperature=0.0, top_p=1.0),
    low_temp=Sampling(temperature=0.3, top_p=0.9),
    default=Sampling(temperature=0.7, top_p=0.95),
    high_temp=Sampling(temperature=1.0, top_p=0.95),
    full=Sampling(temperature=1.0, top_p=1.0),
    creative=Sampling(temperature=1.2, top_p=0.95),
    diverse=Sampling(temperature=0.9, top_p=0.98, repetition_penalty=1.1),
)

if TYPE_CHECKING:
    PresetName = str
else:
    PresetName = Literal[tuple(PRESETS)]


def _check_name(name: str) -> str:
    if PRESETS.find(name) is None:
        forms = "temperature:top_p or temperature:top_p:repetition_penalty, as 0.8:0.95:1.1"
        raise ValueError(f"expected {', '.join(map(repr, PRESETS))}, or {forms}")
    return name


SamplingName = Annotated[str, AfterValidator(_check_name)]
"""A preset, or numbers."""
