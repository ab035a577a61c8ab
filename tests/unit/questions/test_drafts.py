"""Outcomes of drafts: the last filter, the counts and the rows."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drag_ray.config import build
from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.near_duplicates import NO_NEAR_DUPLICATES
from drag_ray.corpus.questions import read_questions
from drag_ray.errors import ConfigError
from drag_ray.questions.config import ROWS_NAME, QuestionsConfig
from drag_ray.questions.drafts import (
    Draft,
    Rewriting,
    build_rows,
    count_drafts,
    drop_repeated,
    mix_difficulty,
    read_rows,
    split_drafts,
)
from drag_ray.storage.artifacts import write_jsonl
from drag_ray.types import Evidence

DRAFT = Draft(
    "q1",
    "fact",
    "a.pdf",
    3,
    "Where is the fuel kept?",
    "in the wings",
    calls=3,
    prompt_tokens=100,
    completion_tokens=20,
    seconds=2,
)


def test_a_question_is_repeated_only_by_one_that_is_kept_and_not_where_the_filter_is_off() -> None:
    drafts = [replace(DRAFT, reason="known"), DRAFT, replace(DRAFT, id="q2")]
    assert [draft.reason for draft in drop_repeated(drafts, QuestionsConfig())] == ["known", "", "near_duplicate"]
    without = build(QuestionsConfig, {"filters": ["copied"]})
    assert drop_repeated(drafts, without) == drafts
    copied = QuestionsConfig(examples=("where is the fuel kept",))
    assert [draft.reason for draft in drop_repeated(drafts, copied)] == ["known", "near_duplicate", "near_duplicate"]


def test_the_same_words_about_another_picture_are_another_question() -> None:
    pictured = [replace(DRAFT, id=f"q{number}", image=image) for number, image in enumerate(("a.jpg", "b.jpg", "a.jpg"))]
    assert [draft.reason for draft in drop_repeated([DRAFT, *pictured], QuestionsConfig())] == ["", "", "", "near_duplicate"]


def test_the_document_of_a_picture_is_on_one_side_of_the_split_though_it_is_no_evidence() -> None:
    pictured = [
        replace(
            DRAFT,
            id=f"p{number}",
            file=f"{number}.pdf",
            question=f"Who is {number}?",
            image="a.jpg",
            other_pages=(Evidence(f"other{number}.pdf", 1),),
        )
        for number in range(10)
    ]
    plain = [replace(DRAFT, id=f"q{number}", file=f"{number}.pdf", question=f"Where is {number}?") for number in range(10)]
    split = split_drafts([*pictured, *plain], NO_NEAR_DUPLICATES, CorpusConfig(test_fraction=0.5))
    assert [question.evidence for question in split[:10]] == [draft.other_pages for draft in pictured]
    sides = [question.split for question in split]
    assert sides[:10] == sides[10:]
    assert set(sides) == {"train", "test"}


def test_each_reason_is_counted_and_a_kept_question_costs_what_all_drafts_have_cost() -> None:
    counts = count_drafts([DRAFT, replace(DRAFT, reason="unreadable"), replace(DRAFT, reason="too_easy"), DRAFT])
    assert (counts["drafts"], counts["questions"], counts["left_out_unreadable"], counts["left_out_too_easy"]) == (4, 2, 1, 1)
    assert counts["left_out_copied"] == counts["left_out_failed"] == 0
    assert [counts[f"{name}_per_question"] for name in ("calls", "tokens", "seconds")] == [6, 240, 4]
    assert "tokens_per_question" not in count_drafts([])


def test_the_rows_are_questions_with_evidence_as_the_corpus_reads_them(tmp_path: Path) -> None:
    written = replace(DRAFT.to_question(), split="test")
    write_jsonl(tmp_path / "questions.jsonl", build_rows([written], {"q1": DRAFT}))
    read, problems = read_questions(tmp_path / "questions.jsonl")
    assert problems == []
    assert read == [written]
    assert (read[0].evidence, read[0].answers, read[0].category) == ((Evidence("a.pdf", 3),), ("in the wings",), "written_fact")


def test_what_was_rewritten_is_counted_with_what_stayed_as_it_was() -> None:
    done, refused = Rewriting("fuzzy", "fuel", "Where?"), Rewriting("fuzzy", refused="unreadable")
    anchored = Rewriting("anchored", "fuel", "Where?")
    drafts = [replace(DRAFT, rewritings=rewritings) for rewritings in ((), (done,), (anchored, refused), (refused,))]
    counts = count_drafts([*drafts, replace(DRAFT, reason="one_search", rewritings=(done,))])
    named = ("fuzzy", "not_fuzzy", "anchored", "not_anchored", "left_out_one_search")
    assert {name: counts[name] for name in named} == dict(zip(named, (1, 2, 1, 0, 1), strict=True))


def test_a_row_has_the_path_over_its_pages_the_wording_before_and_the_image_whose_page_is_no_evidence(tmp_path: Path) -> None:
    rewritings = (Rewriting("anchored", "Kestrel", "Where?"), Rewriting("fuzzy", "Osprey", "When?"))
    places = Evidence("b.pdf", 1), Evidence("c.pdf", 2)
    draft = replace(DRAFT, other_pages=places, links=(("osprey",), ("lund", "hall")), image="ab/c.jpg", rewritings=rewritings)
    [row] = build_rows([draft.to_question()], {"q1": draft})
    assert row["path"] == [
        {"file": "a.pdf", "page_number": 3, "links": ()},
        {"file": "b.pdf", "page_number": 1, "links": ("osprey",)},
        {"file": "c.pdf", "page_number": 2, "links": ("lund", "hall")},
    ]
    assert (row["plain_question"], row["images"]) == ("Where?", ["question_images/ab/c.jpg"])
    assert draft.to_question().evidence == places
    plain = replace(draft, image="")
    [row] = build_rows([plain.to_question()], {"q1": plain})
    assert "images" not in row
    assert len(row["evidence"]) == 3
    write_jsonl(tmp_path / "questions.jsonl", [row])
    assert read_questions(tmp_path / "questions.jsonl") == ([plain.to_question()], [])


def test_of_questions_that_mean_the_same_the_first_stays_unless_they_have_other_numbers() -> None:
    vectors = {"Where is the fuel kept?": (1.0, 0.0), "In what part is petrol?": (0.99, 0.141), "Who flies?": (0.0, 1.0)}
    vectors |= {"Where was the fuel in 2020?": (0.0, -1.0), "Where was it in 2021, the fuel?": (0.0, -1.0)}
    drafts = [replace(DRAFT, id=text, question=text) for text in vectors]

    def embed(texts: list[str]) -> np.ndarray:
        return np.array([vectors.get(text, (-1.0, 0.0)) for text in texts], np.float32)

    left_out = [draft.reason for draft in drop_repeated(drafts, QuestionsConfig(), embed)]
    assert left_out == ["", "same_meaning", "", "", ""]
    assert not any(draft.reason for draft in drop_repeated(drafts, QuestionsConfig(max_cosine=0.999), embed))
    example = QuestionsConfig(examples=("Where is the fuel kept?",), filters=("same_meaning",))
    assert drop_repeated(drafts, example, embed)[0].reason == "same_meaning"
    assert not any(draft.reason for draft in drop_repeated(drafts, QuestionsConfig()))


def test_as_many_questions_stay_as_the_shares_of_ranks_allow() -> None:
    ranks = [1] * 20 + [2] * 3 + [10] * 3 + [11] * 9 + [0]
    drafts = [replace(DRAFT, id=f"q{number}", rank=rank) for number, rank in enumerate(ranks)]
    drafts.append(replace(DRAFT, id="known", rank=1, reason="known"))
    config = build(QuestionsConfig, {"difficulty": {"1": 0.5, "2-10": 0.25, "11-": 0.25}})
    mixed = mix_difficulty(drafts, config, 0)
    kept = [draft.rank for draft in mixed if not draft.reason]
    assert [sum(low <= rank <= high for rank in kept) for low, high in ((1, 1), (2, 10), (11, 100))] == [12, 6, 6]
    assert len(kept) == 24
    assert mixed[-1].reason == "known"
    assert mixed == mix_difficulty(drafts, config, 0)
    assert mixed != mix_difficulty(drafts, config, 1)
    assert mix_difficulty(drafts, QuestionsConfig(), 0) == drafts


def test_a_band_without_questions_leaves_the_others_their_shares(caplog: pytest.LogCaptureFixture) -> None:
    drafts = [replace(DRAFT, id=f"q{number}", rank=1 + number % 2) for number in range(8)]
    config = build(QuestionsConfig, {"difficulty": {"1": 0.4, "2": 0.2, "3-": 0.4}})
    kept = [draft.rank for draft in mix_difficulty(drafts, config, 0) if not draft.reason]
    assert (kept.count(1), kept.count(2)) == (4, 2)
    assert "no question is left at the ranks 3-" in caplog.text


def test_the_style_of_a_question_is_in_its_row_and_kinds_are_counted() -> None:
    styled = replace(DRAFT, style="a nurse in a hurry", kind="table")
    [question] = split_drafts([styled], NO_NEAR_DUPLICATES, CorpusConfig(test_fraction=0))
    [row] = build_rows([question], {styled.id: styled})
    assert (row["style"], row["category"]) == ("a nurse in a hurry", "written_table")
    counts = count_drafts([styled, DRAFT, replace(DRAFT, reason="known")])
    assert (counts["questions_table"], counts["questions_fact"]) == (1, 1)


@pytest.mark.parametrize("example", ["", " ", "???", "_"])
def test_an_example_without_a_word_is_refused(example: str) -> None:
    with pytest.raises(ConfigError, match="examples"):
        build(QuestionsConfig, {"examples": [example]})


def test_rows_are_read_whatever_ends_a_line_for_unicode(tmp_path: Path) -> None:
    name = "a\u2028b\x85c.txt"
    write_jsonl(tmp_path / ROWS_NAME, [{"id": "q1", "evidence": [{"file": name, "page_number": 1}]}, {"id": "q2"}])
    rows = read_rows(tmp_path)
    assert list(rows) == ["q1", "q2"]
    assert rows["q1"]["evidence"][0]["file"] == name
