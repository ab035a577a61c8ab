"""Filters that ask no model, by hand-made cases."""

from typing import Any

import pytest

from drag_ray.config import build
from drag_ray.errors import ConfigError
from drag_ray.questions.config import QuestionsConfig
from drag_ray.questions.drafts import copies_run, find_repeated, refers_to_page
from drag_ray.questions.languages import UNKNOWN, list_languages, tell_language


@pytest.mark.parametrize(
    "question",
    [
        "What does this page say about pumps?",
        "According to the document, who replaces the pump?",
        "Which pump is shown in the table?",
        "How many hours are mentioned above?",
        "What is the topic of the given passage?",
        "How does the page explain the pump?",
        "When should I use this function?",
        "Was steht in diesem Abschnitt über Pumpen?",
        "Que dit cette page ?",
        "¿Qué dice este documento?",
    ],
)
def test_questions_that_speak_of_their_page_are_seen(question: str) -> None:
    assert refers_to_page(question)


@pytest.mark.parametrize(
    "question",
    [
        "How do I print a web page?",
        "Which document proves where I live?",
        "What does a table of limits cost?",
        "How is text aligned?",
        "Who may enter the above-ground tank?",
    ],
)
def test_questions_about_pages_and_texts_of_the_world_are_none_of_them(question: str) -> None:
    assert not refers_to_page(question)


def test_a_run_of_more_words_than_allowed_is_a_copy_whatever_its_case_and_punctuation() -> None:
    page = "The old pump is replaced, after two hundred hours; by a mechanic."
    question = "Who says that the old PUMP is replaced after two hundred hours?"
    assert copies_run(question, page)
    assert not copies_run(question.replace("hours", "days"), page)
    assert not copies_run("Who?", page)
    assert not copies_run(question, "")


def test_of_questions_that_are_nearly_the_same_the_first_stays() -> None:
    asked = [
        "How often does a trained mechanic replace the fuel pump of the left wing in flight operations?",
        "Where is the fuel kept?",
        "How often does a trained mechanic replace the fuel pump of the left wing in flight operation?",
        "Where is the FUEL kept",
        "How often does a trained mechanic replace the fuel filter of the right wing in flight operations?",
        "What did the fuel of all planes of the northern fleet cost the company in the year 2020?",
        "What did the fuel of all planes of the northern fleet cost the company in the year 2021?",
        "Why?",
        "why",
    ]
    assert find_repeated(asked) == {2, 3, 8}
    assert find_repeated(asked, ["Where is the fuel kept?"]) == {1, 2, 3, 8}
    assert find_repeated([]) == set()


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("How often is the pump of the left wing replaced?", "en"),
        ("Wann muss ich die Pumpe des Flügels wechseln?", "de"),
        ("飞机什么时候更换泵", "zh"),
        ("Pumpe?", UNKNOWN),
        ("1,204 993 12 2021 7 8 9", UNKNOWN),
        ("AES-256 GCM TLS1 xkcd qwfp", UNKNOWN),
        ("", UNKNOWN),
    ],
)
def test_the_language_of_a_text_is_told_unless_it_is_too_short_or_of_numbers(text: str, language: str) -> None:
    assert tell_language(text) == language


def test_the_languages_have_iso_codes() -> None:
    assert {"en", "de", "zh"} <= set(list_languages())
    assert "zxx" not in list_languages()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"difficulty": {"1-": 0.5, "3": 0.5}}, "two bands"),
        ({"difficulty": {"1": 0.5, "200-300": 0.5}}, "beyond those that are kept, 1 to 100"),
        ({"difficulty": {"9-2": 0.5}}, "two bands or none"),
        ({"difficulty": {"first": 1}}, "expected them as"),
        ({"difficulty": {"1": 0}}, "greater than 0"),
        ({"difficulty": {"1": 1}, "filters": ["copied"]}, "the filter rank"),
        ({"kinds": ["figure"]}, "page_view"),
        ({"styles": [" "]}, "styles"),
        ({"language": "German"}, "language"),
    ],
)
def test_options_that_cannot_be_met_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(QuestionsConfig, options)
