"""Sampling presets: how a reply is drawn. All but `full`, the model's own distribution, are the DRAG collector's."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters of one draw; temperature 0 takes the likeliest token each time."""

    temperature: float
    top_p: float
    repetition_penalty: float = 1.0


PRESETS: dict[str, Sampling] = {
    "greedy": Sampling(temperature=0.0, top_p=1.0),
    "low_temp": Sampling(temperature=0.3, top_p=0.9),
    "default": Sampling(temperature=0.7, top_p=0.95),
    "high_temp": Sampling(temperature=1.0, top_p=0.95),
    "full": Sampling(temperature=1.0, top_p=1.0),
    "creative": Sampling(temperature=1.2, top_p=0.95),
    "diverse": Sampling(temperature=0.9, top_p=0.98, repetition_penalty=1.1),
}

if TYPE_CHECKING:
    PresetName = str
else:
    PresetName = Literal[tuple(PRESETS)]
