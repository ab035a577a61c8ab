"""The plan of one rollout: its task with its name and seed, and the policy that writes."""

from dataclasses import dataclass

from drag_ray.storage.artifacts import compute_fingerprint
from drag_ray.types import Question


@dataclass(frozen=True, slots=True)
class RolloutTask:
    """A rollout to run: the question, which sample of it, the preset it is drawn with and its seed.

    `baseline` names the baseline that asks in the agent's place, empty for the agent itself. A `hinted` rollout is
    shown the evidence page together with the question. A `prompt_set` above 0 counts the agent's other openings. `policy` names
    that which asks, where several are compared.
    """

    question: Question
    sample_index: int
    preset: str
    seed: int
    baseline: str = ""
    hinted: bool = False
    prompt_set: int = 0
    policy: str = ""

    @property
    def id(self) -> str:
        rollout_id = compute_rollout_id(self.question.id, self.preset, self.sample_index, self.baseline, self.hinted)
        return rollout_id + (f"@{self.policy}" if self.policy else "")


@dataclass(frozen=True, slots=True)
class Policy:
    """The model that writes: its name, and the folder of its adapter if it has one."""

    model: str
    adapter: str = ""


def compute_rollout_id(question_id: str, preset: str, sample_index: int, baseline: str = "", hinted: bool = False) -> str:
    """The name of a rollout, the same in every run."""
    return f"{question_id}/{preset}/{sample_index}" + (f"/{baseline}" if baseline else "") + ("/hinted" if hinted else "")


def compute_seed(run_seed: int, rollout_id: str) -> int:
    """The seed of a rollout: 31 bits that depend on nothing but the run's seed and the rollout."""
    return int(compute_fingerprint(run_seed, rollout_id), 16) & 0x7FFF_FFFF
