"""Connected components of items that share keys, by union-find."""

from collections.abc import Hashable, Iterable


def compute_components(keys: Iterable[Iterable[Hashable]]) -> list[int]:
    """The component of each item, named by the position of its first member.

    Args:
        keys: for each item the things it is tied by; two items that share one are in one component.
    """
    parents: list[int] = []
    holders: dict[Hashable, int] = {}
    for item, item_keys in enumerate(keys):
        parents.append(item)
        for key in item_keys:
            # The smaller root stays, so that a component is named by its first member.
            low, high = sorted((_find_root(parents, holders.setdefault(key, item)), _find_root(parents, item)))
            parents[high] = low
    return [_find_root(parents, item) for item in range(len(parents))]


def _find_root(parents: list[int], item: int) -> int:
    while parents[item] != item:
        parents[item] = parents[parents[item]]
        item = parents[item]
    return item
