"""The canary of an adapter: tokens with their log-probabilities to the trainer, which an engine has to find with it.

Engines and trainers reckon in types and orders of their own. In bfloat16 that is some hundredths of a nat a token, which is more
than many a step of training changes. So an engine is also compared with policies that it could have been left with.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

from pydantic import TypeAdapter

from drag_ray.storage.artifacts import write_json
from drag_ray.storage.file_access import reading

_NAME = "canary.json"
_MOST = 0.5
"""nats a token that no type of numbers explains"""


@dataclass(frozen=True)
class Canary:
    """Tokens, and the log-probabilities of those after the first: to the adapter's policy, and to others by name."""

    token_ids: list[int]
    log_probabilities: list[float]
    others: dict[str, list[float]]

    def __post_init__(self) -> None:
        lengths = {len(values) for values in (self.log_probabilities, *self.others.values())}
        if lengths != {len(self.token_ids) - 1} or len(self.token_ids) < 2:
            raise ValueError(f"{len(self.token_ids)} tokens need one log-probability less in each list, not {sorted(lengths)}")

    def write(self, adapter_dir: Path) -> None:
        """Put it beside the adapter's weights."""
        write_json(adapter_dir / _NAME, asdict(self))

    def find_difference(self, found: Sequence[float]) -> str:
        """Tell how what an engine finds differs from the policy: it is far away, or half as far from another. Empty without."""
        distance = _compute_distance(found, self.log_probabilities)
        others = {name: _compute_distance(found, values) for name, values in self.others.items()}
        nearest = min(others, key=others.__getitem__, default="")
        if nearest and others[nearest] < distance / 2:
            return f"{distance:.3g} nats a token from it, but {others[nearest]:.3g} from {nearest}"
        return "" if distance <= _MOST else f"{distance:.3g} nats a token from it"


def read_canary(adapter_dir: Path) -> Canary | None:
    """The canary of an adapter, if it has one. Raises ArtifactError where it is not what was written."""
    if not (path := adapter_dir / _NAME).exists():
        return None
    with reading(path):
        return TypeAdapter(Canary).validate_json(path.read_bytes())


def _compute_distance(first: Sequence[float], second: Sequence[float]) -> float:
    return fmean(abs(one - other) for one, other in zip(first, second, strict=True))
