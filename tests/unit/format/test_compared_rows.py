"""Rows that compare: preference pairs, scored queries, steps with their advantages, and pages beside the evidence."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
from factories import asked_at, build_answer, build_call, build_page, build_question, build_search, build_trajectory, build_turn
from small_index import write_index

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.errors import ConfigError, DataError
from drag_ray.format.columns import SupervisedExample
from drag_ray.format.config import FormatConfig, FormatSections
from drag_ray.format.leaks import PageChecker
from drag_ray.format.rows.dpo import build_rows as build_pairs
from drag_ray.format.rows.relevance import FORMAT, PageRow, find_others
from drag_ray.format.rows.relevance import build_rows as build_page_rows
from drag_ray.format.rows.reward import build_rows as build_scored_queries
from drag_ray.format.rows.rl_steps import build_rows as build_steps
from drag_ray.format.tables import ScoredPart
from drag_ray.types import Evidence, Hit

RENDER = get_protocol("tags").render_search


def first_turns(*searches: tuple[str, int | None], **fields) -> list:
    return [
        build_trajectory(build_search(query, rank), sample_index=index, **fields) for index, (query, rank) in enumerate(searches)
    ]


def pairs(rows: list[dict]) -> list[tuple[str, str]]:
    return [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows]


def test_samples_are_paired_from_the_opening_that_they_share_and_from_no_other_state(process) -> None:
    records = first_turns(("good", 1), ("bad", None))
    (row,) = build_pairs(process(*records), FormatConfig()).to_dicts()
    assert pairs([row]) == [(RENDER("good"), RENDER("bad"))]
    assert row["prompt"] == json.loads(records[0].messages)[:2]
    assert (row["chosen_score"], row["rejected_score"]) == (1.0, 0.0)
    tables = process(
        build_trajectory(build_search("bad"), build_search("good", 1)),
        build_trajectory(build_search("other", 1), question=build_question(id="q2", question="What else?")),
    )
    assert build_pairs(tables, FormatConfig()).to_dicts() == []


def test_each_chosen_query_takes_its_hardest_negative_first(process) -> None:
    records = first_turns(("miss", None), ("best", 1), ("near", 5), ("second", 2))
    rows = build_pairs(process(*records), FormatConfig(min_margin=0.5)).to_dicts()
    best, second, near, miss = (RENDER(query) for query in ("best", "second", "near", "miss"))
    # They are worth 1, .63, .39 and 0.
    assert pairs(rows) == [(best, near), (second, miss), (best, miss)]


def test_pairs_closer_than_the_margin_are_left_out_in_spite_of_rounding(process) -> None:
    tables = process(*first_turns(("one", 1), ("two", 2), ("three", 3)))
    assert len(build_pairs(tables, FormatConfig(min_margin=0.13)).to_dicts()) == 3
    assert len(build_pairs(tables, FormatConfig(min_margin=0.3)).to_dicts()) == 2
    assert pairs(build_pairs(tables, FormatConfig(min_margin=0.5)).to_dicts()) == [(RENDER("one"), RENDER("three"))]
    tables = process(*first_turns(("one", 1), ("three", 3), **asked_at(4)))
    assert (RENDER("one"), RENDER("three")) in pairs(build_pairs(tables, FormatConfig(min_margin=0.5)).to_dicts())


def test_later_turns_are_paired_where_the_whole_prefix_is_the_same_also_with_a_baselines_query(process) -> None:
    records = [
        build_trajectory(build_search("same"), build_search("good", 1)),
        build_trajectory(build_search("same"), build_search("bad"), sample_index=1),
    ]
    (row,) = build_pairs(process(*records), FormatConfig()).to_dicts()
    assert row["prompt"] == json.loads(records[0].messages)[:4]
    assert pairs([row]) == [(RENDER("good"), RENDER("bad"))]
    part = process(*first_turns(("own", 3)), build_trajectory(build_search("theirs", 1), id="q1-rm3", baseline="rm3"))
    (row,) = build_pairs(part, FormatConfig()).to_dicts()
    assert pairs([row]) == [(RENDER("theirs"), RENDER("own"))]
    assert row["trajectory_id"] == "q1-rm3"


@pytest.mark.parametrize(("mode", "asked"), [("rewrite", build_question().question), ("expand", "")])
def test_the_question_is_chosen_over_what_loses_and_rejected_beside_what_wins(process, mode: str, asked: str) -> None:
    records = first_turns(("wins", 1), ("ties", 2), ("loses", 4), **asked_at(2), query_mode=mode)
    rows = build_pairs(process(*records), FormatConfig(min_margin=0.2)).to_dicts()
    wins, question, ties, loses = RENDER("wins"), RENDER(asked), RENDER("ties"), RENDER("loses")
    assert pairs(rows) == [(wins, question), (question, loses), (ties, loses), (wins, ties), (wins, loses)]
    assert {json.dumps(row["prompt"]) for row in rows} == {json.dumps(json.loads(records[0].messages)[:2])}
    scores = {pair: (row["chosen_score"], row["rejected_score"]) for pair, row in zip(pairs(rows), rows, strict=True)}
    assert scores[wins, question] == pytest.approx((0.3691, 0), abs=1e-4)
    assert scores[question, loses] == pytest.approx((0, -0.2003), abs=1e-4)
    assert {row["trajectory_id"] for row in rows} == {"q1-0", "q1-1"}


def test_the_question_is_a_query_of_the_first_turn_alone_and_what_is_worse_is_never_chosen(process) -> None:
    rows = build_pairs(process(*first_turns(("near", 4), ("far", None), **asked_at(1))), FormatConfig()).to_dicts()
    question = RENDER(build_question().question)
    assert pairs(rows) == [(question, RENDER("near")), (question, RENDER("far"))]
    records = [build_trajectory(build_search("same", 2), build_search("good", 1), **asked_at(2))]
    assert pairs(build_pairs(process(*records), FormatConfig()).to_dicts()) == []


def test_the_number_of_pairs_is_limited(process) -> None:
    tables = process(*first_turns(("good", 1), ("a", None), ("b", None), ("c", None)))
    assert len(build_pairs(tables, FormatConfig(max_pairs_per_question=2)).to_dicts()) == 2
    assert len(build_pairs(tables, FormatConfig(max_pairs_per_question=0)).to_dicts()) == 3


def test_first_searches_count_once_each_success_or_not(process) -> None:
    tables = process(
        build_trajectory(build_search("good", 1), build_search("later", 1)),
        build_trajectory(build_search("bad"), sample_index=1),
        build_trajectory(build_search(" bad "), sample_index=2),
        build_trajectory(build_search("failed", error="gone", hits=()), sample_index=3),
    )
    rows = build_scored_queries(tables, FormatConfig()).to_dicts()
    assert [(row["query"], row["score"]) for row in rows] == [("good", 1.0), ("bad", 0.0)]


@pytest.mark.parametrize(("mode", "asked"), [("rewrite", build_question().question), ("expand", "")])
def test_the_question_is_among_the_queries_and_gains_nothing(process, mode: str, asked: str) -> None:
    part = process(
        build_trajectory(build_search("good", 1), **asked_at(2), query_mode=mode),
        build_trajectory(build_search("bad"), sample_index=1, **asked_at(2), query_mode=mode),
    )
    rows = build_scored_queries(part, FormatConfig()).to_dicts()
    assert {row["query"]: row["score"] for row in rows} == pytest.approx({"good": 0.3691, asked: 0, "bad": -0.6309}, abs=1e-4)
    assert {row["query"]: row["baseline"] for row in rows} == {"good": "", asked: "question", "bad": ""}
    assert [row["completion"][0]["content"] for row in rows if row["query"] == asked] == [f"<search>{asked}</search>"]


def test_every_reply_is_a_step_word_for_word_with_its_reward(process) -> None:
    drawn = {"completion_token_ids": (7, 8), "completion_logprobs": (-0.5, -0.25)}
    search = build_search("a", 1, raw_text="Hm. <search>a</search>", **drawn)
    trajectory = build_trajectory(build_turn(), search, build_answer())
    rows = build_steps(process(trajectory), FormatConfig()).to_dicts()
    messages = json.loads(trajectory.messages)
    assert [row["prompt"] for row in rows] == [messages[:2], messages[:4], messages[:6]]
    assert [row["completion"] for row in rows] == [messages[2:3], messages[4:5], messages[6:7]]
    assert [row["reward"] for row in rows] == pytest.approx([-0.2, 1.0, 0.0])
    assert [row["trajectory_reward"] for row in rows] == pytest.approx([0.8] * 3)
    assert [(row["step"], row["num_steps"]) for row in rows] == [(1, 3), (2, 3), (3, 3)]
    assert [row["completion_token_ids"] for row in rows] == [[4, 5], [7, 8], [4, 5]]
    assert [row["completion_logprobs"] for row in rows] == [[], [-0.5, -0.25], []]
    assert {row["advantage"] for row in rows} == {0.0}  # nothing to compare it with


def test_dropped_replies_are_steps_too_with_the_temperature_of_their_preset(process) -> None:
    part = process(build_trajectory(build_search("cut", finish_reason="length"), build_search("x", error="gone", hits=())))
    assert build_steps(part, FormatConfig())["step"].to_list() == [1]
    presets = ("default", "full", "diverse", "elsewhere", "0.8:0.9")
    part = process(*(build_trajectory(build_search("a"), preset=preset, id=preset) for preset in presets))
    rows = build_steps(part, FormatConfig()).select("trajectory_id", "temperature").rows()
    assert dict(rows) == {"default": 0.7, "full": 1.0, "diverse": 0.9, "elsewhere": 1.0, "0.8:0.9": 0.8}


def list_advantages(part, **options) -> dict[tuple[str, int], float]:
    rows = build_steps(part, FormatConfig(**options)).select("trajectory_id", "step", "advantage").rows()
    return {(name, step): advantage for name, step, advantage in rows}


def test_in_find_page_what_a_reply_and_those_after_it_earn_is_compared_where_rollouts_are_in_the_same_state(process) -> None:
    part = process(
        build_trajectory(build_search("a", 1), build_answer(), sample_index=0, **asked_at(2)),
        build_trajectory(build_search("b", 2), build_search("c", 1), sample_index=1, **asked_at(2)),
        build_trajectory(build_search("d"), sample_index=2, **asked_at(2)),
        build_trajectory(build_turn(), sample_index=3, **asked_at(2)),
    )
    # From the opening on they earn .3691 + 0, 0 + .3691 - .05, -.6309 and -.2. Each later state is of one alone.
    expected = {("q1-0", 1): 0.4048, ("q1-1", 1): 0.3548, ("q1-2", 1): -0.5952, ("q1-3", 1): -0.1643}
    expected |= {("q1-0", 2): 0.0, ("q1-1", 2): 0.0}
    assert list_advantages(part) == pytest.approx(expected, abs=1e-4)


def test_in_find_page_later_searches_after_the_same_first_one_are_compared(process) -> None:
    later = [build_search("c", 1), build_search("d"), build_search("e", 3)]
    same = [build_trajectory(build_search("b"), search, sample_index=index) for index, search in enumerate(later)]
    other = build_trajectory(build_search("f", 1), build_search("g"), sample_index=3)  # its second search has nothing to improve
    # After "b" they earn 1, 0 and .5, each less the .05 of a later search; "f" and "g" 1 - .05 together.
    second = {"q1-0": 0.5, "q1-1": -0.5, "q1-2": 0.0, "q1-3": 0.0}
    first = {"q1-0": 0.375, "q1-1": -0.625, "q1-2": -0.125, "q1-3": 0.375}
    advantages = list_advantages(process(*same, other))
    assert {name: advantage for (name, step), advantage in advantages.items() if step == 2} == pytest.approx(second)
    assert {name: advantage for (name, step), advantage in advantages.items() if step == 1} == pytest.approx(first)


def test_in_find_page_calls_and_answers_have_what_they_brought(process) -> None:
    calls = (build_call(), build_call(tool_error="no such page"))
    called = [build_trajectory(call, build_search("a", 1), sample_index=index) for index, call in enumerate(calls)]
    advantages = list_advantages(process(*called, build_trajectory(build_search("b"), sample_index=2)))
    assert advantages == pytest.approx(
        {("q1-0", 1): 1 / 3, ("q1-1", 1): 1 / 3, ("q1-2", 1): -2 / 3, ("q1-0", 2): 0, ("q1-1", 2): 0}
    )
    right, wrong = (build_trajectory(build_answer(said), sample_index=index) for index, said in enumerate(("340 rpm", "fuel")))
    assert list_advantages(process(right, wrong, answer_weight=0.5)) == pytest.approx({("q1-0", 1): 0.25, ("q1-1", 1): -0.25})


@pytest.mark.parametrize(
    ("options", "expected"),
    # Returns of 1, .6309 and .5; the optimal baseline is ln(mean(exp(return))).
    [
        ({"baseline": "others"}, (1 - 0.56545, 0.6309 - 0.75, 0.5 - 0.81545)),
        ({"baseline": "optimal"}, (1 - 0.73338, 0.6309 - 0.73338, 0.5 - 0.73338)),
    ],
)
def test_a_return_is_compared_with_the_others_alone_or_with_what_the_best_policy_nearby_would_earn(
    process, options: dict[str, Any], expected: tuple[float, ...]
) -> None:
    part = process(*(build_trajectory(build_search(f"query {rank}", rank), sample_index=rank) for rank in (1, 2, 3)))
    assert list_advantages(part, **options) == pytest.approx(
        {(f"q1-{rank}", 1): advantage for rank, advantage in enumerate(expected, start=1)}, abs=2e-4
    )
    found = (build_trajectory(build_turn(), build_search(f"query {rank}", rank), sample_index=rank) for rank in (1, 2, 3))
    costly = list_advantages(process(*found, invalid_cost=1000), **options)
    assert [costly[f"q1-{rank}", 1] for rank in (1, 2, 3)] == pytest.approx(expected, abs=2e-4)
    alone = process(build_trajectory(build_search("query", 1)))
    assert set(list_advantages(alone, **options).values()) == {0.0}


def test_with_the_reward_candidates_only_what_adds_to_them_has_an_advantage(process) -> None:
    searches = [build_search("a", 1), build_search("b", 9), build_search("c", None)]
    rollouts = [build_trajectory(search, sample_index=sample, **asked_at(None)) for sample, search in enumerate(searches)]
    near = process(*rollouts, reward="candidates", candidate_depth=10)
    assert list_advantages(near) == pytest.approx({("q1-0", 1): 1 / 3, ("q1-1", 1): 1 / 3, ("q1-2", 1): -2 / 3})
    few = process(*rollouts, reward="candidates", candidate_depth=5)
    assert list_advantages(few) == pytest.approx({("q1-0", 1): 2 / 3, ("q1-1", 1): -1 / 3, ("q1-2", 1): -1 / 3})


def test_what_is_worth_the_same_or_answers_another_opening_has_no_advantage(process) -> None:
    part = process(
        build_trajectory(build_search("a", 2), sample_index=0, **asked_at(2)),
        build_trajectory(build_search("a a a", 2), sample_index=1, **asked_at(2)),
        build_trajectory(build_search("b"), question_id="q2", id="q2-0", sample_index=0, **asked_at(None)),
        build_trajectory(build_turn(), question_id="q2", id="q2-1", sample_index=1, **asked_at(None)),
    )
    assert build_steps(part, FormatConfig())["reward"].n_unique() > 2
    assert set(list_advantages(part).values()) == {0.0}
    part = process(
        build_trajectory(build_search("a", 1), sample_index=0),
        build_trajectory(build_search("b"), sample_index=1),
        build_trajectory(build_search("c", 2), sample_index=2, prompt_set=1),
    )
    assert list_advantages(part) == pytest.approx({("q1-0", 1): 0.5, ("q1-1", 1): -0.5})


TEXTS = [
    "The rotor may turn at 340 rpm. " + "It is made of steel. " * 40,
    "The rotor of the pump is steel.",
    "The rotor is oiled.",
    "",
    "Fuel filter.",
]
QUESTION = build_question(question="How fast may the rotor turn?", evidence=(Evidence("a.pdf", 1), Evidence("a.pdf", 4)))
SIDES = pl.DataFrame({"question_id": ["q1"], "side": ["train"]})


@pytest.fixture
def paged(tmp_path: Path, process: Callable[..., ScoredPart]) -> ScoredPart:
    pages = [build_page(file="a.pdf", page_number=number, text=text) for number, text in enumerate(TEXTS, 1)]
    write_index(tmp_path / "index", pages, [])
    rollouts = [build_trajectory(build_search("a", 1), question=QUESTION, sample_index=number) for number in range(2)]
    return replace(process(*rollouts), index_dir=tmp_path / "index")


def test_evidence_and_pages_that_are_found_and_are_none_stand_beside_each_other(paged: ScoredPart) -> None:
    rows = build_page_rows(paged, FormatConfig(relevance_chars=60))
    pages = {row["page_number"]: row for row in rows.iter_rows(named=True)}
    assert {number: row["is_evidence"] for number, row in pages.items()} == {1: True, 2: False, 3: False}  # 4 has no text
    assert len(pages) == rows.height  # a question of several rollouts is asked once
    assert "340 rpm" in pages[1]["passage"]
    assert len(pages[1]["passage"]) <= 60
    assert pages[2]["passage"] == TEXTS[1]
    examples = {number: FORMAT.to_example(cast(PageRow, page)) for number, page in pages.items()}
    answers = {number: example.messages[-1] for number, example in examples.items() if isinstance(example, SupervisedExample)}
    assert [answers[number]["content"] for number in (1, 2, 3)] == ["yes", "no", "no"]


def test_so_many_pages_are_drawn_and_the_same_ones_again_and_none_without_an_index(paged: ScoredPart) -> None:
    drawn = [build_page_rows(paged, FormatConfig(relevance_pages=1, seed=seed)) for seed in (0, 0, 1, 2, 3, 4, 5, 6, 7)]
    assert [rows["is_evidence"].sum() for rows in drawn] == [1] * 9
    assert {rows.height for rows in drawn} == {2}
    assert drawn[0].equals(drawn[1])
    assert len({rows.filter(~pl.col("is_evidence"))["page_number"].item() for rows in drawn}) == 2
    assert build_page_rows(replace(paged, index_dir=None), FormatConfig()).is_empty()


def test_pages_are_drawn_from_a_range_of_ranks_and_below_a_share_of_the_score_of_the_evidence() -> None:
    hits = [Hit("a.pdf", number, number, score) for number, score in enumerate((9.0, 8.0, 7.9, 3.0), 1)]
    evidence = [Evidence("a.pdf", 2)]

    def find(**options: Any) -> list[int]:
        return [page.page_number for page in find_others(hits, evidence, FormatConfig(**options))]

    assert find() == [1, 3, 4]
    assert find(relevance_first=3) == [3, 4]
    assert find(relevance_margin=0.05) == [4]
    assert find(relevance_margin=0.01) == [3, 4]
    assert [page.page_number for page in find_others(hits, [], FormatConfig(relevance_margin=0.5))] == [1, 2, 3, 4]


def test_what_nearly_duplicates_the_evidence_is_never_one_of_the_others(tmp_path: Path, paged: ScoredPart) -> None:
    shutil.rmtree(tmp_path / "index")
    long = "The rotor may turn at 340 rpm and no faster, " * 3 + " ".join(f"word{number}" for number in range(30))
    texts = [long, f"{long} too", f"rotor {' '.join(f'other{number}' for number in range(30))}", ""]
    pages = [build_page(file="a.pdf", page_number=number, text=text) for number, text in enumerate(texts, 1)]
    write_index(tmp_path / "index", pages, [])
    assert build_page_rows(paged, FormatConfig())["page_number"].to_list() == [1, 3]


def test_without_evidence_the_best_page_stands_in_its_place_and_nobody_says_what_it_is(paged: ScoredPart) -> None:
    asked = [build_question(question="Is the rotor oiled?", evidence=())]
    part = ScoredPart.of_questions(asked, paged.index_dir)
    assert build_page_rows(part, FormatConfig()).is_empty()
    taught = FormatConfig.model_validate({"teacher": {"model": "reader"}, "relevance_pages": 1})
    rows = build_page_rows(part, taught)
    assert (rows["page_number"][0], rows.height) == (3, 2)
    assert rows["is_evidence"].to_list() == [None, None]
    checker = PageChecker(part, SIDES)
    checker.check(rows, "train", "train.parquet")
    with pytest.raises(DataError, match="its page is not what it says of the question's evidence"):
        checker.check(rows.with_columns(is_evidence=pl.lit(False)), "train", "train.parquet")


def test_a_teacher_needs_rows_to_score_and_is_a_source_of_the_stage(tmp_path: Path) -> None:
    taught = {"teacher": {"model": str(tmp_path)}}
    with pytest.raises(ConfigError, match=r"format\.teacher\.model '.*': scores rows of the format relevance, and"):
        FormatSections(FormatConfig.model_validate(taught)).check()
    sections = FormatSections(FormatConfig.model_validate({**taught, "formats": ["relevance"]}))
    sections.check()
    assert sections.list_sources() == {"format.teacher.model": tmp_path}
    assert sections.format.teacher.device == "auto"


def test_vectors_that_the_index_lacks_are_asked_for(paged: ScoredPart) -> None:
    with pytest.raises(ConfigError, match=r"format\.relevance_retrieval 'hybrid': .* has no vectors of its pages"):
        build_page_rows(paged, FormatConfig(relevance_retrieval="hybrid"))


def test_a_page_that_is_called_what_it_is_not_is_caught(paged: ScoredPart) -> None:
    rows = build_page_rows(paged, FormatConfig())
    PageChecker(paged, SIDES).check(rows, "train", "train.parquet")
    swapped = rows.with_columns(is_evidence=~pl.col("is_evidence"))
    with pytest.raises(DataError, match=r"train\.parquet: row 1 of question 'q1' leaks: its page is not what it says"):
        PageChecker(paged, SIDES).check(swapped, "train", "train.parquet")
    with pytest.raises(DataError, match="its question is not on the validation side"):
        PageChecker(paged, SIDES).check(rows, "validation", "validation.parquet")
