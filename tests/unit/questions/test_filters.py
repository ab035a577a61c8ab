"""Filters that ask no model, by hand-made cases."""

import pytest

from drag_ray.questions.drafts import copies_run, find_repeated, refers_to_page


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
