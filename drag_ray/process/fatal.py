"""Rollouts that break down in the errors of their tools, as OpenSearch-VL trains on them (fatal-aware GRPO).

What was said before the breakdown may have been right: its tokens stay and can only be encouraged. What follows says nothing of
the policy and is not learned. https://github.com/shawn0728/OpenSearch-VL. There a rollout that loops or ends without an answer
counts as broken down as well, so that it is never discouraged; here only one whose tools failed does.
"""

from collections.abc import Sequence

MAX_ERRORS = 3
"""failed calls in a row that break a rollout down"""


def find_fatal_step(has_errors: Sequence[bool], max_errors: int = MAX_ERRORS) -> int | None:
    """The 0-based step that begins the first `max_errors` failed calls in a row; None without."""
    length = 0
    for step, has_error in enumerate(has_errors):
        length = length + 1 if has_error else 0
        if length == max_errors:
            return step - max_errors + 1
    return None


def list_learned(num_steps: int, fatal_step: int | None) -> list[bool]:
    """For each step whether its tokens are learned: those before the fatal one."""
    return [fatal_step is None or step < fatal_step for step in range(num_steps)]


def compute_group_advantages(rewards: Sequence[float], are_fatal: Sequence[bool], epsilon: float = 1e-6) -> list[float]:
    """Advantages within the rollouts of one question: rewards less their mean, over their deviation; of a broken one at least 0.

    All rollouts count in mean and deviation (of the population).

    Raises:
        ValueError: the two differ in length.
    """
    if not rewards:
        return []
    mean = sum(rewards) / len(rewards)
    deviation = (sum((reward - mean) ** 2 for reward in rewards) / len(rewards)) ** 0.5
    return [
        max(0.0, advantage) if is_fatal else advantage
        for advantage, is_fatal in zip([(reward - mean) / (deviation + epsilon) for reward in rewards], are_fatal, strict=True)
    ]
