"""Coverage of a collection: the order in which its pages are asked about, which is even over files and over topics.

Topics are groups of pages with like words: pages are points by the weights of these (TF-IDF, hashed) in the space of latent
semantic analysis (Deerwester et al., "Indexing by latent semantic analysis", 1990). k-means finds many small groups, and those
with the nearest means are joined (Ward, "Hierarchical grouping to optimize an objective function", 1963): k-means alone cuts a
large topic into pieces before it tells small ones apart. No model is asked: most of the time goes into reading the words.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from warnings import catch_warnings

from drag_ray.corpus.near_duplicates import MIN_WORDS, list_words
from drag_ray.corpus.questions import hash_text
from drag_ray.questions.pages import PageText
from drag_ray.types import Evidence

_MIN_PAGES = 10
"""of a topic, on average: of fewer pages there are fewer topics"""
_MAX_CHARS = 2_000
"""of a page; its beginning says what it is about"""
_NUM_FEATURES = 2**15
_MAX_LEARNED = 10_000
"""pages that the groups are learned from, which the others join"""
_NUM_DIMENSIONS = 100
_PARTS = 5
"""of a topic, on average, which are joined"""


def draw_pages(pages: Iterable[PageText], seed: int) -> list[PageText]:
    """The pages in an order that the seed draws, whatever theirs is."""
    return sorted(pages, key=lambda page: hash_text(f"{page.place.file}\n{page.place.page_number}", seed))


def group_pages(pages: Sequence[PageText], num_topics: int, seed: int) -> dict[Evidence, int]:
    """The topic of each page: a number below `num_topics`, and below a tenth of the different pages that are learned from.

    Args:
        pages: in an order that is drawn, for the first of them are learned from.
        num_topics: topics at most.
        seed: draws the first means.
    """
    texts = [page.text[:_MAX_CHARS] for page in pages]
    number = min(num_topics, len(set(texts[:_MAX_LEARNED])) // _MIN_PAGES)
    if number < 2:
        return dict.fromkeys((page.place for page in pages), 0)
    from sklearn.cluster import AgglomerativeClustering, KMeans  # takes a second to import
    from sklearn.decomposition import TruncatedSVD
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer
    from sklearn.preprocessing import normalize

    # `set_params` where the signatures of the library have too narrow types
    vectorizer = HashingVectorizer(n_features=_NUM_FEATURES, alternate_sign=False).set_params(analyzer=list_words, norm=None)
    weights = TfidfTransformer(sublinear_tf=True).fit_transform(vectorizer.transform(texts))
    learned, drawn = weights[:_MAX_LEARNED], {"random_state": seed % 2**32}
    space = TruncatedSVD(min(_NUM_DIMENSIONS, learned.shape[0] - 1)).set_params(**drawn).fit(learned)
    points = normalize(space.transform(weights))
    with catch_warnings(action="ignore", category=ConvergenceWarning):  # of pages that say the same there are fewer groups
        parts = KMeans(_PARTS * number).set_params(n_init=1, **drawn).fit(points[:_MAX_LEARNED])
    joined = AgglomerativeClustering(number, linkage="ward").fit_predict(normalize(parts.cluster_centers_))
    return dict(zip((page.place for page in pages), joined[parts.predict(points)].tolist(), strict=True))


def spread_pages(pages: Sequence[PageText], topics: Mapping[Evidence, int]) -> list[PageText]:
    """The pages in an order whose beginning, however long, covers files and topics as evenly as it can.

    Next comes a page whose file and topic together have had the fewest, each beside its even share: the minimisation of Pocock
    and Simon, "Sequential treatment assignment with balancing for prognostic factors in the controlled clinical trial" (1975).
    So most questions are neither about a long document or a large topic, nor about the only document of a topic. Pages that
    say the same as one before but for numbers, as forms do, come after all others.

    Args:
        pages: in an order that is drawn, which decides between equals.
        topics: of each page.
    """
    repeats = _find_repeats(pages)
    cells = defaultdict[tuple[int, str], list[tuple[bool, int]]](list)  # the places of pages, the next one last
    for place in reversed(range(len(pages))):
        cells[topics[pages[place].place], pages[place].place.file].append((place in repeats, place))
    heaps = defaultdict[int, list[tuple[bool, int, int, str]]](list)  # of each topic its files: those with fewest pages first
    for (topic, file), cell in cells.items():
        cell.sort(reverse=True)
        heaps[topic].append((cell[-1][0], 0, cell[-1][1], file))
    for heap in heaps.values():
        heapify(heap)
    num_files, num_topics = len({page.place.file for page in pages}), len(heaps)
    of_file, of_topic, spread = Counter[str](), Counter[int](), list[PageText]()

    def weigh(topic: int) -> tuple[bool, int, int]:
        while (first := heaps[topic][0])[1] != of_file[first[3]]:  # another topic has had a page of the file
            heapreplace(heaps[topic], (first[0], of_file[first[3]], *first[2:]))
        is_repeat, taken, place, _ = first
        return is_repeat, num_files * taken + num_topics * of_topic[topic], place

    while heaps:
        topic = min(heaps, key=weigh)
        *_, place, file = heappop(heaps[topic])
        spread.append(pages[place])
        cells[topic, file].pop()
        of_file[file] += 1
        of_topic[topic] += 1
        if cells[topic, file]:
            is_repeat, place = cells[topic, file][-1]
            heappush(heaps[topic], (is_repeat, of_file[file], place, file))
        elif not heaps[topic]:
            del heaps[topic]
    return spread


def _find_repeats(pages: Sequence[PageText]) -> set[int]:
    """The places of pages that have the words of one before. Numbers are not compared, nor are pages of few words."""
    seen, repeats = set[str](), set[int]()
    for place, page in enumerate(pages):
        words = list_words(page.text)
        said = " ".join(word for word in words if not word.isdecimal())
        if len(words) >= MIN_WORDS and said in seen:
            repeats.add(place)
        seen.add(said)
    return repeats
