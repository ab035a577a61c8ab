"""The graph of pages: two are linked by a document that one of them names, and by rare words that both have."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import nlargest
from pathlib import PurePosixPath
from typing import NamedTuple

from drag_ray.corpus.near_duplicates import list_words
from drag_ray.questions.pages import PageText
from drag_ray.types import Evidence

_MAX_PAGES = 10
"""A word or a name that stands on more pages links none of them."""
_MIN_LETTERS = 4
_MAX_SHARED = 0.5
"""of the words of the page that has fewer: from there on the pages say the same"""
_MAX_LABELS = 5
_MAX_LINKS = 5
"""of a page, the strongest"""
_MAX_NAME_WORDS = 8


class Link(NamedTuple):
    """Another page, and what links it: names of a document of one that the other has, and rare words, the rarest first."""

    page: PageText
    labels: tuple[str, ...]


Graph = Mapping[Evidence, Sequence[Link]]
"""The links of each page that has any, the strongest first."""


def link_pages(pages: Sequence[PageText], within_file: bool) -> Graph:
    """The pages as a graph. A word counts the more the fewer pages have it, and the name of a document as if nobody else had it.

    Words have four letters or more. A page names a document by its file's name or its title (see `list_names`): so do the words
    of a hyperlink. The link leads to the first page of that document.

    Args:
        pages: those that may be linked.
        within_file: whether pages of one file are linked, or those of different files.
    """
    words = [{word for word in list_words(page.text) if len(word) >= _MIN_LETTERS and not word.isdecimal()} for page in pages]
    holders = defaultdict[str, list[int]](list)
    for place, held in enumerate(words):
        for word in held:
            holders[word].append(place)
    named = defaultdict[int, list[tuple[int, str]]](list) if within_file else _find_named(pages)
    graph: dict[Evidence, list[Link]] = {}
    for place, page in enumerate(pages):
        shared = defaultdict[int, dict[str, float]](dict)
        for word in sorted(words[place]):
            if len(holders[word]) <= _MAX_PAGES:
                for other in holders[word]:
                    shared[other][word] = 1 / len(holders[word])
        for other, name in named[place]:
            shared[other][name] = 1.0
        strengths = {
            other: sum(labels.values())
            for other, labels in shared.items()
            if other != place
            and (pages[other].place.file == page.place.file) == within_file
            and len(words[place] & words[other]) < max(1, _MAX_SHARED * min(len(words[place]), len(words[other])))
        }
        best = nlargest(_MAX_LINKS, strengths, key=lambda other: (strengths[other], -other))
        if best:
            labels = {other: nlargest(_MAX_LABELS, shared[other], shared[other].__getitem__) for other in best}
            graph[page.place] = [Link(pages[other], tuple(labels[other])) for other in best]
    return graph


def list_names(page: PageText) -> set[tuple[str, ...]]:
    """The names of the document of a page, each as its words: that of its file and, on its first page, the first line, where it
    is short enough for a title. One of fewer than four letters is none."""
    title = next(filter(str.strip, page.text.splitlines()), "") if page.place.page_number == 1 else ""
    names = {tuple(list_words(text)) for text in (PurePosixPath(page.place.file).stem, title)}
    return {name for name in names if len(name) <= _MAX_NAME_WORDS and len("".join(name).strip("0123456789")) >= _MIN_LETTERS}


def _find_named(pages: Sequence[PageText]) -> defaultdict[int, list[tuple[int, str]]]:
    """For the place of each page the places of those that it names or that name it, with the name."""
    last_first = sorted(range(len(pages)), key=lambda place: -pages[place].place.page_number)
    firsts = {pages[place].place.file: place for place in last_first}
    owners = defaultdict[tuple[str, ...], list[int]](list)
    for place in firsts.values():
        for name in list_names(pages[place]):
            owners[name].append(place)
    beginnings = defaultdict[str, list[tuple[str, ...]]](list)
    for name, places in owners.items():
        if len(places) == 1:  # otherwise it tells no document from another
            beginnings[name[0]].append(name)
    naming = defaultdict[tuple[str, ...], set[int]](set)
    for place, page in enumerate(pages):
        words = list_words(page.text)
        for start, word in enumerate(words):
            for name in beginnings.get(word, ()):
                its_file = pages[owners[name][0]].place.file
                if tuple(words[start : start + len(name)]) == name and page.place.file != its_file:
                    naming[name].add(place)
    found = defaultdict[int, list[tuple[int, str]]](list)
    for name, places in naming.items():
        for place in sorted(places) if len(places) <= _MAX_PAGES else ():
            found[place].append((owners[name][0], " ".join(name)))
            found[owners[name][0]].append((place, " ".join(name)))
    return found


def find_walk(
    graph: Graph, start: PageText, num_links: int, files: frozenset[str] = frozenset(), known: frozenset[str] = frozenset()
) -> tuple[Link, ...] | None:
    """The links of a walk from a page, the strongest first; None where there is no walk of so many.

    Each goes on by a word that no page before the last one has, for otherwise the pages between could be left out.

    Args:
        files: those that the walk has left, to which it does not come back.
        known: words of the pages of these.
    """
    if not num_links:
        return ()
    behind = files | {start.place.file}, known | set(list_words(start.text))
    for link in graph.get(start.place, ()):
        labels = tuple(label for label in link.labels if not known.issuperset(list_words(label)))
        if link.page.place.file not in files and labels:
            rest = find_walk(graph, link.page, num_links - 1, *behind)
            if rest is not None:
                return Link(link.page, labels), *rest
    return None
