"""Rankings in the order of a model that reads the question together with each page.

Nogueira and Cho, Passage Re-ranking with BERT (2019). Endpoints, evaluations and benchmarks order by this what a search finds,
with a model of `engine.encoders.reranker`, which `finetune.methods.rerank` trains, with a log-linear model of
`baselines.page_features`, or with both: what the one and the other err in differs.
A model that is shown a list and writes its order, as V-Retrver's, is an agent with the task of `recipes.v_retrver.task` instead.

What is read of a page, in training too, is how it begins, which often names its subject, and what it says of the question.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pstdev

from drag_ray.search.config import Factors
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence, Hit, Hits

_HEAD_CHARS = 120
"""of the page's first line, which stand before a part from further down"""

Score = Callable[[str, Sequence[str]], Sequence[float]]
"""From a question and texts to how well each of them answers it; more is better."""
ScoreHits = Callable[[str, Hits], Sequence[float]]
"""From a question and a ranking to how well each of its pages answers it, by what can be told without reading; more is better."""


class PageRanker:
    """A model over the pages of an index. Safe to share between threads where the model is.

    Args:
        score: the model that reads; None orders by features alone.
        weight: of its scores beside those of the search, or of the features, as in `put_in_order`.
        features: take the place of the search's scores.
    """

    def __init__(
        self,
        searcher: Searcher,
        score: Score | None = None,
        page_chars: int = 0,
        weight: float | Factors = 1.0,
        features: ScoreHits | None = None,
    ) -> None:
        assert score or features, "nothing puts pages in order"
        self._searcher = searcher
        self._score = score
        self._page_chars = page_chars
        self._weight = weight if score else 0.0
        self._features = features

    def rerank(self, question: str, hits: Hits, top_k: int, known: dict[Evidence, float] | None = None) -> Hits:
        """The `top_k` best of these pages by their scores as answers to the question (see `put_in_order`).

        Args:
            known: scores of pages that were read before for the question; those that are read now are added.

        Raises:
            SearchIndexError: a page is of another index.
        """
        known = {} if known is None else known
        unread = [hit.page for hit in hits if hit.page not in known]
        if self._score and unread:
            passages = [cut_passage(self._searcher, page, question, self._page_chars) for page in unread]
            known |= zip(unread, self._score(question, passages), strict=True)
        first = self._features(question, hits) if self._features and self._weight != 1 else None
        return put_in_order(hits, known, top_k, self._weight, first)


def put_in_order(
    hits: Hits, scores: Mapping[Evidence, float], top_k: int, weight: float | Factors = 1.0, first: Sequence[float] | None = None
) -> Hits:
    """The `top_k` best of these pages by their scores, equal ones in the order that they had.

    Args:
        hits: of a search, with its own scores.
        scores: of a model, by the page; none where its weight is 0.
        weight: of the model's scores; below 1 others have the rest, both standardised over these pages. Or factors of both.
        first: these others, one for each page; the search's own where nothing is said.
    """
    first = [hit.score for hit in hits] if first is None else first
    if isinstance(weight, Factors):
        values = [weight.model * scores[hit.page] + weight.features * other for hit, other in zip(hits, first, strict=True)]
    elif not weight:
        values = list(first)
    elif weight < 1:
        both = zip(standardise([scores[hit.page] for hit in hits]), standardise(first), strict=True)
        values = [weight * of_model + (1 - weight) * other for of_model, other in both]
    else:
        values = [scores[hit.page] for hit in hits]
    ordered = sorted(zip(hits, values, strict=True), key=lambda pair: -pair[1])[:top_k]
    ranked = [Hit(hit.file, hit.page_number, rank, value) for rank, (hit, value) in enumerate(ordered, start=1)]
    return Hits(ranked, hits.is_partial)


def standardise(values: Sequence[float]) -> list[float]:
    """With a mean of 0 and a deviation of 1; all 0 where they are equal."""
    if not values:
        return []
    mean, deviation = fmean(values), pstdev(values)
    return [(value - mean) / deviation if deviation else 0.0 for value in values]


def cut_passage(searcher: Searcher, page: Hit | Evidence, question: str, max_chars: int) -> str:
    """A page's text; of a longer one its beginning and, on a line of its own, the part with most of the question's rare words.

    Args:
        max_chars: characters of the passage at most; 0 for the page as it is.

    Raises:
        SearchIndexError: the page is of another index.
    """
    text = searcher.text(page)
    if not max_chars or len(text) <= max_chars:
        return text
    head = _cut_at_word(text.lstrip().partition("\n")[0], min(_HEAD_CHARS, max_chars // 4))
    found = searcher.snippet(page, question, max_chars - len(head) - 1)
    in_beginning = found.start + len(found.text) <= max_chars
    return _cut_at_word(text, max_chars) if in_beginning else f"{head}\n{found.text}"


def _cut_at_word(text: str, max_chars: int) -> str:
    """As many words as fit in; of a word that alone does not, its beginning."""
    if len(text) <= max_chars:
        return text
    whole, space, _ = text[: max_chars + 1].rpartition(" ")
    return whole if space else text[:max_chars]
