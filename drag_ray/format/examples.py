"""The example in a training row, whatever its columns are: the few kinds of examples that trainers know."""

from dataclasses import dataclass

from drag_ray.engine.generate import Message


@dataclass(frozen=True)
class SupervisedExample:
    """A conversation of which the replies at the positions `learned`, in rising order, are learned."""

    messages: list[Message]
    learned: list[int]


@dataclass(frozen=True)
class PreferenceExample:
    """Two replies to one prompt, of which one is better."""

    prompt: list[Message]
    chosen: Message
    rejected: Message


@dataclass(frozen=True)
class ScoredExample:
    """A reply with the score that a reward model is to give it."""

    prompt: list[Message]
    reply: Message
    score: float


@dataclass(frozen=True)
class RewardedExample:
    """A prompt to reply to anew, with what the policy replied to it once and what that earned."""

    prompt: list[Message]
    recorded_reply: Message
    reward: float


Example = SupervisedExample | PreferenceExample | ScoredExample | RewardedExample
