"""all-MiniLM-L6-v2, whose weights come inside a package, beside figures of sentence-transformers."""

import numpy as np
import pytest

from drag_ray.engine.encoders.embedding import Embedder
from drag_ray.search.config import EmbeddingConfig

SENTENCES = ("The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium.")
SIMILARITIES = ((1.0, 0.6660, 0.1046), (0.6660, 1.0, 0.1411), (0.1046, 0.1411, 1.0))
"""Cosines of these sentences in the quickstart of sentence-transformers' documentation."""
FIRST_VALUES = (
    (0.019196, 0.120085, 0.159598, 0.067066),
    (-0.018690, 0.041519, 0.074315, 0.078433),
    (0.136502, 0.082273, -0.025262, 0.030451),
)
"""The vectors begin so with sentence-transformers 6.2.0."""


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder(EmbeddingConfig(model="embedded-minilm"))


def test_texts_that_look_the_same_have_one_vector(embedder: Embedder) -> None:
    vectors = embedder.embed_queries(["office Zürich 10^6 1 1/2", "o\ufb03ce Zu\u0308\u00adrich 10⁶ 1½"])
    assert vectors[0] == pytest.approx(vectors[1], abs=1e-6)


def test_sentences_are_as_similar_as_published(embedder: Embedder) -> None:
    vectors = embedder.embed_queries(SENTENCES)
    assert vectors @ vectors.T == pytest.approx(np.array(SIMILARITIES), abs=1e-4)
    assert vectors[:, :4] == pytest.approx(np.array(FIRST_VALUES), abs=1e-5)
    assert embedder.embed_pages(SENTENCES) == pytest.approx(vectors, abs=1e-6)


def test_a_long_page_is_cut_so_that_a_window_holds_what_is_asked_for(embedder: Embedder) -> None:
    page = "The ferry leaves at noon and returns in the evening. " * 60 + SENTENCES[0] + " Bring warm clothes to the island." * 60
    windows = embedder.cut(page)
    assert all(len(embedder._model.tokenizer(window)["input_ids"]) <= 256 for window in windows)
    assert len(windows) == 6  # 1,087 tokens, of which each window after the first brings 190
    best = int(np.argmax(embedder.embed_pages(windows) @ embedder.embed_queries([SENTENCES[1]])[0]))
    assert SENTENCES[0] in windows[best]
    assert page.startswith(windows[0])
    assert page.endswith(windows[-1])
