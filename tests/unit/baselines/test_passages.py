"""Passages that a model writes, and the queries made of them."""

from pathlib import Path

import pytest
from factories import build_page, build_question

from drag_ray import schemas
from drag_ray.baselines import passages
from drag_ray.baselines.baseline import Sources
from drag_ray.baselines.passages import Hyde, PassageConfig, PassageExample, Query2doc, extract_passage, read_examples
from drag_ray.baselines.registry import BaselineSections
from drag_ray.storage import artifacts
from drag_ray.types import Evidence


def test_hyde_asks_with_the_words_of_the_paper() -> None:
    [message] = Hyde().build_messages("how wisdom teeth are removed")
    assert message["role"] == "user"
    assert message["content"] == (
        "Please write a passage to answer the question.\nQuestion: how wisdom teeth are removed\nPassage:"
    )


def test_query2doc_shows_its_examples_as_earlier_turns() -> None:
    examples = (PassageExample("when?", "In 1912."), PassageExample("where?", "At sea."))
    messages = Query2doc(examples=examples).build_messages("who?")
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant", "user"]
    assert messages[1]["content"] == "In 1912."
    assert messages[4]["content"] == "Write a passage that answers the given query.\n\nQuery: who?\nPassage:"


@pytest.mark.parametrize(
    ("reply", "passage"),
    [
        ("One\n  two. ", "One two."),
        ("<think>what do I know</think>\n\nRotors turn.", "Rotors turn."),
        ("opened by the template</think>Rotors turn.", "Rotors turn."),
        ("x <search>leak</search> y", "x search leak /search y"),
        ("", ""),
    ],
)
def test_a_passage_is_the_reply_without_thinking_and_tags(reply: str, passage: str) -> None:
    assert extract_passage(reply) == passage


@pytest.fixture
def index_dir(tmp_path: Path) -> Path:
    """Eight pages with a question each, the first half of them for training."""
    pages = [build_page(page_number=number, text=f"page  {number}\nof the manual") for number in range(1, 9)]
    questions = [
        build_question(
            id=f"q{number}",
            question=f"what is on page {number}",
            evidence=(Evidence("manual.pdf", number),),
            split="test" if number > 4 else "train",
        )
        for number in range(1, 9)
    ]
    artifacts.write_parquet(tmp_path / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    artifacts.write_parquet(tmp_path / "questions.parquet", schemas.to_table(questions, schemas.QUESTIONS))
    return tmp_path


def test_examples_are_training_questions_with_their_own_page(index_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passages, "_NUM_EXAMPLES", 3)
    monkeypatch.setattr(passages, "_EXAMPLE_CHARS", 6)
    examples = read_examples(index_dir, seed=1)
    assert len(examples) == 3
    for example in examples:
        number = int(example.question[-1])
        assert number <= 4
        assert example.passage == f"page {number}"
    assert read_examples(index_dir, seed=1) == examples
    sections = BaselineSections.model_validate({"passage": {"max_tokens": 7}})
    prepared = Query2doc.prepare(Sources(sections, index_dir, seed=1))
    assert prepared == Query2doc(PassageConfig(max_tokens=7), examples)
