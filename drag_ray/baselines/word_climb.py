"""Hill climbing over words with weights, for a score that can only be tried out."""

from collections.abc import Callable, Iterator, Mapping, Sequence

Weights = Mapping[str, int]


def climb(
    words: Sequence[str], score: Callable[[Weights], float], *, max_words: int, max_weight: int, least_gain: float
) -> dict[str, int]:
    """Words with weights, found by taking the best of all single steps until none is worth `least_gain`.

    A step adds a word with weight 1, or changes a word's weight by 1; one of weight 0 is left out. Of equal steps that with the
    earlier word is taken.

    Args:
        words: candidates.
        score: of some of them, at most `max_words`, with weights from 1 to `max_weight`.
        max_words: words at most.
        max_weight: of a word.
        least_gain: in score, of a step.

    Returns:
        The weights of the words, those that were added first first; empty where no word is worth adding.
    """
    found: dict[str, int] = {}
    best = score(found)
    while True:
        steps = list(_list_steps(words, found, max_words, max_weight))
        scores = [score(step) for step in steps]
        highest = max(scores, default=best)
        if highest < best + least_gain:
            return found
        best, found = highest, steps[scores.index(highest)]


def _list_steps(words: Sequence[str], found: Weights, max_words: int, max_weight: int) -> Iterator[dict[str, int]]:
    for word in words:
        weight = found.get(word, 0)
        if weight < max_weight and (weight or len(found) < max_words):
            yield {**found, word: weight + 1}
        if weight == 1:
            yield {other: count for other, count in found.items() if other != word}
        elif weight:
            yield {**found, word: weight - 1}
