"""The question without its stop words."""

import pytest

from drag_ray.agent.keywords import STOP_WORDS, write_keywords


@pytest.mark.parametrize(
    ("question", "keywords"),
    [
        ("What are the symptoms of Lupus ?", "symptoms Lupus"),
        ("How does the Snow-man's neighbour speak?", "Snow man's neighbour speak"),
        ("Why couldn\u2019t she swim?", "swim"),
        ("Was ist ein Hubschrauber (CH-53)?", "ist ein Hubschrauber CH 53"),
        ("Zu\u0308rich super\u00advised it in 10⁶", "Zürich supervised 10 6"),
        ("Who was he?", "Who was he?"),
        ("?!", "?!"),
    ],
)
def test_stop_words_and_signs_are_left_out(question: str, keywords: str) -> None:
    assert write_keywords(question) == keywords


def test_the_list_has_porters_words_in_lower_case() -> None:
    assert {"i", "the", "which", "couldn't", "how's", "very"} <= STOP_WORDS
    assert all(word == word.lower() for word in STOP_WORDS)
