import json

import pytest
from factories import asked_at, build_question, build_search, build_trajectory

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.format.config import FormatConfig
from drag_ray.format.rows.dpo import build_rows

RENDER = get_protocol("tags").render_search


def first_turns(*searches: tuple[str, int | None], **fields) -> list:
    return [
        build_trajectory(build_search(query, rank), sample_index=index, **fields) for index, (query, rank) in enumerate(searches)
    ]


def pairs(rows: list[dict]) -> list[tuple[str, str]]:
    return [(row["chosen"][0]["content"], row["rejected"][0]["content"]) for row in rows]


def test_samples_are_paired_from_the_opening_that_they_share(process) -> None:
    records = first_turns(("good", 1), ("bad", None))
    (row,) = build_rows(process(*records), FormatConfig()).to_dicts()
    assert pairs([row]) == [(RENDER("good"), RENDER("bad"))]
    assert row["prompt"] == json.loads(records[0].messages)[:2]
    assert (row["chosen_score"], row["rejected_score"]) == (1.0, 0.0)


def test_each_chosen_query_takes_its_hardest_negative_first(process) -> None:
    records = first_turns(("miss", None), ("best", 1), ("near", 5), ("second", 2))
    rows = build_rows(process(*records), FormatConfig(min_margin=0.5)).to_dicts()
    best, second, near, miss = (RENDER(query) for query in ("best", "second", "near", "miss"))
    # They are worth 1, .63, .39 and 0.
    assert pairs(rows) == [(best, near), (second, miss), (best, miss)]


def test_pairs_closer_than_the_margin_are_left_out(process) -> None:
    tables = process(*first_turns(("one", 1), ("two", 2), ("three", 3)))
    assert len(build_rows(tables, FormatConfig(min_margin=0.13)).to_dicts()) == 3
    assert len(build_rows(tables, FormatConfig(min_margin=0.3)).to_dicts()) == 2
    assert pairs(build_rows(tables, FormatConfig(min_margin=0.5)).to_dicts()) == [(RENDER("one"), RENDER("three"))]


def test_a_margin_is_met_in_spite_of_rounding(process) -> None:
    # What ranks 1 and 3 gain over rank 4 differs by less than 0.5 in floating point.
    tables = process(*first_turns(("one", 1), ("three", 3), **asked_at(4)))
    assert (RENDER("one"), RENDER("three")) in pairs(build_rows(tables, FormatConfig(min_margin=0.5)).to_dicts())


def test_queries_from_different_states_or_questions_are_never_paired(process) -> None:
    tables = process(
        build_trajectory(build_search("bad"), build_search("good", 1)),
        build_trajectory(build_search("other", 1), question=build_question(id="q2", question="What else?")),
    )
    assert build_rows(tables, FormatConfig()).to_dicts() == []


def test_later_turns_are_paired_where_the_whole_prefix_is_the_same(process) -> None:
    records = [
        build_trajectory(build_search("same"), build_search("good", 1)),
        build_trajectory(build_search("same"), build_search("bad"), sample_index=1),
    ]
    (row,) = build_rows(process(*records), FormatConfig()).to_dicts()
    assert row["prompt"] == json.loads(records[0].messages)[:4]
    assert pairs([row]) == [(RENDER("good"), RENDER("bad"))]


@pytest.mark.parametrize(("mode", "asked"), [("rewrite", build_question().question), ("expand", "")])
def test_the_question_is_chosen_over_what_loses_and_rejected_beside_what_wins(process, mode: str, asked: str) -> None:
    records = first_turns(("wins", 1), ("ties", 2), ("loses", 4), **asked_at(2), query_mode=mode)
    rows = build_rows(process(*records), FormatConfig(min_margin=0.2)).to_dicts()
    wins, question, ties, loses = RENDER("wins"), RENDER(asked), RENDER("ties"), RENDER("loses")
    assert pairs(rows) == [(wins, question), (question, loses), (ties, loses), (wins, ties), (wins, loses)]
    assert {json.dumps(row["prompt"]) for row in rows} == {json.dumps(json.loads(records[0].messages)[:2])}
    scores = {pair: (row["chosen_score"], row["rejected_score"]) for pair, row in zip(pairs(rows), rows, strict=True)}
    assert scores[wins, question] == pytest.approx((0.3691, 0), abs=1e-4)
    assert scores[question, loses] == pytest.approx((0, -0.2003), abs=1e-4)
    assert {row["trajectory_id"] for row in rows} == {"q1-0", "q1-1"}


def test_what_is_worse_than_the_question_is_never_chosen(process) -> None:
    rows = build_rows(process(*first_turns(("near", 4), ("far", None), **asked_at(1))), FormatConfig()).to_dicts()
    question = RENDER(build_question().question)
    assert pairs(rows) == [(question, RENDER("near")), (question, RENDER("far"))]


def test_the_question_is_a_query_of_the_first_turn_alone(process) -> None:
    records = [build_trajectory(build_search("same", 2), build_search("good", 1), **asked_at(2))]
    assert pairs(build_rows(process(*records), FormatConfig()).to_dicts()) == []


def test_a_query_that_a_baseline_proposed_is_compared_with_the_policys_own(process) -> None:
    part = process(*first_turns(("own", 3)), build_trajectory(build_search("theirs", 1), id="q1-rm3", baseline="rm3"))
    (row,) = build_rows(part, FormatConfig()).to_dicts()
    assert pairs([row]) == [(RENDER("theirs"), RENDER("own"))]
    assert row["trajectory_id"] == "q1-rm3"


def test_the_number_of_pairs_of_a_question_is_limited(process) -> None:
    tables = process(*first_turns(("good", 1), ("a", None), ("b", None), ("c", None)))
    assert len(build_rows(tables, FormatConfig(max_pairs_per_question=2)).to_dicts()) == 2
    assert len(build_rows(tables, FormatConfig(max_pairs_per_question=0)).to_dicts()) == 3


def test_only_the_hardest_negatives_are_taken_where_wanted(process) -> None:
    part = process(*first_turns(("good", 1), ("far", None), ("near", 4)))
    rows = build_rows(part, FormatConfig(max_negatives=1)).to_dicts()
    assert pairs(rows) == [(RENDER("good"), RENDER("near")), (RENDER("near"), RENDER("far"))]
