"""The graph of pages, which are linked by a hyperlink, by a document that one of them names, and by rare words that both have;
and the orders: the questions to write, each of a page or of a walk over pages that are linked."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import nlargest
from itertools import chain, islice
from pathlib import PurePosixPath
from typing import NamedTuple

from drag_ray.corpus.links import LinkedFiles
from drag_ray.corpus.near_duplicates import list_words
from drag_ray.questions.config import WALKS, KindName
from drag_ray.questions.pages import PageText, has_table
from drag_ray.storage.artifacts import compute_fingerprint
from drag_ray.types import Evidence

HYPERLINK = "hyperlink: "
"""begins the label of one, before the file that it leads to"""
_MAX_PAGES = 10
"""A word, a name or a hyperlink to a page that stands on more pages links none of them, and the links of no more pages lead to
the same one: otherwise every walk would come to a table of contents."""
_MIN_LETTERS = 4
_MAX_SHARED = 0.5
"""of the words of the page that has fewer: from there on the pages say the same"""
_MAX_LABELS = 5
_MAX_LINKS = 5
"""of a page, the strongest"""
_MAX_NAME_WORDS = 8
_HYPERLINK_WEIGHT = 1e6
"""more than all words of two pages come to"""


class Link(NamedTuple):
    """Another page, and what links it: a hyperlink that leads there (`HYPERLINK`, the file and, where it says one, the number of
    the page), names of a document of one that the other has, and rare words, the rarest first."""

    page: PageText
    labels: tuple[str, ...]


class Graph(dict[Evidence, Sequence[Link]]):
    """The links of each page that has any, the strongest first; in `targets` all pages that its hyperlinks lead to."""

    def __init__(self, links: Mapping[Evidence, Sequence[Link]], targets: Mapping[Evidence, frozenset[Evidence]]) -> None:
        super().__init__(links)
        self.targets = targets


def link_pages(pages: Sequence[PageText], within_file: bool, others: Iterable[PageText] = ()) -> Graph:
    """The pages as a graph. A word counts the more the fewer pages have it, and the name of a document as if nobody else had it.

    Words have four letters or more. A page names a document by its file's name or its title (see `list_names`), if these are of
    two words or more. The link leads to the first of the pages of that document; so does a hyperlink that says no page. A
    hyperlink comes before all else, and leads one way.

    Args:
        pages: those that may be linked.
        within_file: whether pages of one file are linked, or those of different files.
        others: pages that are not linked, on which documents may have their titles.
    """
    words = [{word for word in list_words(page.text) if len(word) >= _MIN_LETTERS and not word.isdecimal()} for page in pages]
    holders = defaultdict[str, list[int]](list)
    for place, held in enumerate(words):
        for word in held:
            holders[word].append(place)
    named = defaultdict[int, list[tuple[int, str]]](list) if within_file else _find_named(pages, others)
    leading = defaultdict[int, list[tuple[int, str]]](list) if within_file else _find_hyperlinks(pages)
    candidates: list[tuple[float, int, int, tuple[str, ...]]] = []
    for place, page in enumerate(pages):
        shared = defaultdict[int, dict[str, float]](dict)
        for word in sorted(words[place]):
            if len(holders[word]) <= _MAX_PAGES:
                for other in holders[word]:
                    shared[other][word] = 1 / len(holders[word])
        names = defaultdict[int, set[str]](set)
        for other, name in named[place]:
            shared[other][name] = 1.0
            names[other].update(name.split())
        for other, label in leading[place]:
            shared[other][label] = _HYPERLINK_WEIGHT
        strengths = {
            other: sum(labels.values())
            for other, labels in shared.items()
            if other != place
            and (pages[other].place.file == page.place.file) == within_file
            and len((words[place] & words[other]) - names[other])
            < max(1, _MAX_SHARED * min(len(words[place]), len(words[other])))
        }
        for other in nlargest(_MAX_PAGES, strengths, key=lambda other: (strengths[other], -other)):
            labels = nlargest(_MAX_LABELS, shared[other], shared[other].__getitem__)
            candidates.append((-strengths[other], place, other, tuple(labels)))
    graph = defaultdict[Evidence, list[Link]](list)
    num_leading = Counter[int]()
    for _, place, other, labels in sorted(candidates):
        links = graph[pages[place].place]
        if len(links) < _MAX_LINKS and num_leading[other] < _MAX_PAGES:
            links.append(Link(pages[other], labels))
            num_leading[other] += 1
    targets = {pages[place].place: frozenset(pages[other].place for other, _ in found) for place, found in leading.items()}
    return Graph({place: links for place, links in graph.items() if links}, targets)


def list_names(page: PageText) -> set[tuple[str, ...]]:
    """The names of the document of a page, each as its words: that of its file and, on its first page, the first line, where it
    is short enough for a title. One of fewer than four letters is none."""
    title = next(filter(str.strip, page.text.splitlines()), "") if page.place.page_number == 1 else ""
    names = {tuple(list_words(text)) for text in (PurePosixPath(page.place.file).stem, title)}
    return {name for name in names if len(name) <= _MAX_NAME_WORDS and sum(map(str.isalpha, "".join(name))) >= _MIN_LETTERS}


def _find_named(pages: Sequence[PageText], others: Iterable[PageText]) -> defaultdict[int, list[tuple[int, str]]]:
    """For the place of each page the places of those that it names or that name it, with the name."""
    owners = defaultdict[tuple[str, ...], set[str]](set)
    for page in chain(pages, others):
        for name in list_names(page):
            if len(name) > 1:  # a single one, such as `data` or `notes`, may be any word
                owners[name].add(page.place.file)
    firsts = _find_firsts(pages)
    leading: dict[tuple[str, ...], int] = {}
    lengths = defaultdict[str, set[int]](set)
    for name, files in owners.items():
        if len(files) == 1 and (file := min(files)) in firsts:  # a name of two documents tells neither from the other
            leading[name] = firsts[file]
            lengths[name[0]].add(len(name))
    naming = defaultdict[tuple[str, ...], set[int]](set)
    for place, page in enumerate(pages):
        words = list_words(page.text)
        for start, word in enumerate(words):
            for length in lengths.get(word, ()):
                name = tuple(words[start : start + length])
                if name in leading and page.place.file != pages[leading[name]].place.file:
                    naming[name].add(place)
    found = defaultdict[int, list[tuple[int, str]]](list)
    for name, places in naming.items():
        for place in sorted(places) if len(places) <= _MAX_PAGES else ():
            found[place].append((leading[name], " ".join(name)))
            found[leading[name]].append((place, " ".join(name)))
    return found


def _find_firsts(pages: Sequence[PageText]) -> dict[str, int]:
    """The place of the first of the pages of each document."""
    last_first = sorted(range(len(pages)), key=lambda place: -pages[place].place.page_number)
    return {pages[place].place.file: place for place in last_first}


def _find_hyperlinks(pages: Sequence[PageText]) -> defaultdict[int, list[tuple[int, str]]]:
    """For the place of each page the places of those of other documents that its hyperlinks lead to, with their labels."""
    files = LinkedFiles({page.place.file for page in pages})
    firsts = _find_firsts(pages)
    places = {page.place: place for place, page in enumerate(pages)}
    linking = defaultdict[tuple[int, str], set[int]](set)
    for place, page in enumerate(pages):
        for address in page.links:
            file, number = files.find(page.place.file, address) or ("", None)
            if number is None:
                other, label = firsts.get(file), f"{HYPERLINK}{file}"
            else:
                other, label = places.get(Evidence(file, number)), f"{HYPERLINK}{file}#page={number}"
            if other is not None and file != page.place.file:  # within a document they lead to notes and back to the contents
                linking[other, label].add(place)
    found = defaultdict[int, list[tuple[int, str]]](list)
    for (other, label), linked in linking.items():
        for place in linked if len(linked) <= _MAX_PAGES else ():  # a menu is on every page
            found[place].append((other, label))
    return found


def find_walks(
    graph: Graph,
    start: PageText,
    num_links: int,
    files: frozenset[str] = frozenset(),
    known: frozenset[str] = frozenset(),
    reached: frozenset[Evidence] = frozenset(),
) -> Iterator[tuple[Link, ...]]:
    """The walks of so many links from a page, those of the strongest links first.

    Each goes on by a word that no page before the last one has, or by a hyperlink to a page that none of them leads to, for
    otherwise the pages between could be left out.

    Args:
        files: those that the walk has left, to which it does not come back.
        known: words of the pages of these.
        reached: pages that their hyperlinks lead to.
    """
    if not num_links:
        yield ()
        return
    targets = graph.targets.get(start.place, frozenset())
    behind = files | {start.place.file}, known | set(list_words(start.text)), reached | targets
    for link in graph.get(start.place, ()):
        is_reached = link.page.place in reached
        labels = tuple(
            label
            for label in link.labels
            if not (is_reached if label.startswith(HYPERLINK) else known.issuperset(list_words(label)))
        )
        if link.page.place.file not in files and labels:
            for rest in find_walks(graph, link.page, num_links - 1, *behind):
                yield Link(link.page, labels), *rest


@dataclass(frozen=True, slots=True)
class Order:
    """A question that is to be written: its id, its kind, the page or pages, and what links each to the one before it."""

    id: str
    kind: KindName
    pages: tuple[PageText, ...]
    links: tuple[tuple[str, ...], ...] = ()


def plan_orders(
    pages: Sequence[PageText], kinds: Sequence[KindName], limit: int, others: Sequence[PageText] = (), samples: int = 1
) -> list[Order]:
    """The questions to write: kinds in turn over the pages, then the next kind of each page, until there are `limit` of them; for
    a limit of 0 one of each page. A table is asked about where the text of the page has one, a figure where it has a picture, and
    a kind of several pages where a walk leads over so many that are not asked about together already.

    Args:
        others: pages that are not asked about, on which documents may have their titles.
        samples: drafts of each question.
    """
    planned = _plan(pages, kinds, len(kinds) if limit else 1, others)
    drawn = (replace(order, id=f"{order.id}-{n}" if n else order.id) for order in planned for n in range(samples))
    return list(islice(drawn, limit or None))


def _plan(pages: Sequence[PageText], kinds: Sequence[KindName], turns: int, others: Sequence[PageText]) -> Iterator[Order]:
    graphs = {within: link_pages(pages, within, others) for within in {WALKS[kind][1] for kind in kinds if kind in WALKS}}
    ordered = set[tuple[KindName, frozenset[Evidence]]]()
    planned = set[str]()  # a kind that is named twice comes to the same page again
    for turn in range(turns):
        for number, page in enumerate(pages):
            kind = kinds[(number + turn) % len(kinds)]
            id = f"written-{compute_fingerprint(page.place.file, page.place.page_number, kind)}"
            if id in planned:
                continue
            planned.add(id)
            num_pages, within = WALKS.get(kind, (1, False))
            if num_pages == 1:
                if (kind != "table" or has_table(page.text)) and (kind != "figure" or page.image):
                    yield Order(id, kind, (page,))
                continue
            for walk in find_walks(graphs[within], page, num_pages - 1):
                walked = (page, *(link.page for link in walk))
                asked = kind, frozenset(one.place for one in walked)
                if asked not in ordered:
                    ordered.add(asked)
                    yield Order(id, kind, walked, tuple(link.labels for link in walk))
                    break
