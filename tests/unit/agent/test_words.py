"""Words of questions and queries: the key words of a question, and replies that repeat themselves or copy."""

import polars as pl
import pytest

from drag_ray.agent.degeneration import copies_file_name, copies_question, find_repetitive, join_words, to_query_key
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


def test_stop_words_are_porters_and_of_one_or_two_words_nothing_is_a_copy() -> None:
    assert {"i", "the", "which", "couldn't", "how's", "very"} <= STOP_WORDS
    assert all(word == word.lower() for word in STOP_WORDS)
    frame = pl.DataFrame({"query": ["rotor speed", "rotor speed", "a"], "question": ["Rotor speed?", "", "a b c"]})
    assert frame.select(copies_question(pl.col("query"), pl.col("question"))).to_series().to_list() == [False] * 3


PROSE = (
    "The rotor may turn at 340 rpm; above it the blades meet air that is too thin, so the manual gives a limit for each height."
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rotor speed limit " * 8, True),
        ("the " * 20, True),
        (PROSE, False),
        ("rotor rotor rotor", False),  # too short to tell
        ("", False),
        (f"{PROSE} {PROSE}", False),  # said twice, so half of it is new
        (f"{PROSE} {PROSE} {PROSE}", True),
    ],
)
def test_text_that_goes_round_in_circles_is_repetitive(text: str, expected: bool) -> None:
    assert find_repetitive(pl.Series([text, PROSE])).to_list() == [expected, False]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("manual.pdf#6", True),
        ("limits in Report-2.PDF", True),
        ("doc_0017 rotor", True),  # an evidence file without a suffix
        ("DataFrame.to_html", False),
        ("rotor pdf", False),
    ],
)
def test_a_query_with_the_name_of_a_document_copies_it(query: str, expected: bool) -> None:
    frame = pl.DataFrame({"query": [query], "files": [["doc_0017"]]})
    assert frame.select(copies_file_name(pl.col("query"), pl.col("files"))).item() is expected


def test_words_are_joined_without_order_case_and_punctuation_and_spacing_makes_no_other_query() -> None:
    frame = pl.DataFrame({"text": ['"Rotor  speed"', "speed, ROTOR; speed", "rotor-speeds", "\uff32otor pro\ufb01le"]})
    assert frame.select(join_words(pl.col("text"))).to_series().to_list() == [
        "rotor speed",
        "rotor speed",
        "rotor speeds",
        "profile rotor",
    ]
    assert pl.DataFrame({"q": [" rotor \n speed ", "Rotor speed"]}).select(to_query_key(pl.col("q"))).to_series().to_list() == [
        "rotor speed",
        "Rotor speed",
    ]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("How fast may the rotor turn?", True),
        ("question: HOW fast, may the rotor turn (speed)", True),
        ("how fast may the rotors turn", False),
        ("rotor turn fast", False),  # key words of the question are a query of its own
        ("the rotor may turn how fast", False),
        ("", False),
    ],
)
def test_a_query_with_all_words_of_the_question_copies_it(query: str, expected: bool) -> None:
    frame = pl.DataFrame({"query": [query], "question": ["How fast may the rotor turn?"]})
    assert frame.select(copies_question(pl.col("query"), pl.col("question"))).item() is expected
