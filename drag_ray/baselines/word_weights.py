"""Words with weights, as a policy writes them: `therapy^2 surgery`."""

import random
from collections.abc import Mapping

from drag_ray.search.weighted_words import write_weight


def vary_words(weights: Mapping[str, int], random_numbers: random.Random) -> dict[str, int]:
    """The words with their weights, of which each is left out by a chance of an eighth and counts 1 more by another."""
    varied: dict[str, int] = {}
    for word, weight in weights.items():
        chance = random_numbers.random()
        if chance >= 1 / 8:
            varied[word] = weight + (chance >= 7 / 8)
    return varied


def write_words(weights: Mapping[str, int]) -> str:
    """Words with their weights as an addition to a question: `therapy^2 surgery`."""
    return " ".join(write_weight(word, weight) for word, weight in weights.items())
