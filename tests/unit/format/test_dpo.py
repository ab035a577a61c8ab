import json

from factories import build_question, build_search, build_trajectory

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.format.config import FormatConfig
from drag_ray.format.rows.dpo import build_rows

RENDER = get_protocol("tags").render_search


def first_turns(*searches: tuple[str, int | None]) -> list:
    return [build_trajectory(build_search(query, rank), sample_index=index) for index, (query, rank) in enumerate(searches)]


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
    assert pairs(rows) == [(best, near), (second, near), (best, miss), (second, miss)]


def test_pairs_closer_than_the_margin_are_left_out(process) -> None:
    tables = process(*first_turns(("one", 1), ("two", 2), ("three", 3)))
    assert len(build_rows(tables, FormatConfig(min_margin=0.3)).to_dicts()) == 3
    assert pairs(build_rows(tables, FormatConfig(min_margin=0.5)).to_dicts()) == [(RENDER("one"), RENDER("three"))]


def test_a_margin_of_one_rank_is_met_by_neighbours_in_spite_of_rounding(process) -> None:
    # Their scores at a top_k of 10 are 0.3 and 0.2, whose difference is less than 0.1 in floating point.
    tables = process(
        build_trajectory(build_search("eighth", 8), top_k=10),
        build_trajectory(build_search("ninth", 9), top_k=10, sample_index=1),
    )
    assert pairs(build_rows(tables, FormatConfig(min_margin=0.1)).to_dicts()) == [(RENDER("eighth"), RENDER("ninth"))]


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


def test_all_failures_give_no_pair(process) -> None:
    assert build_rows(process(*first_turns(("near", 4), ("far", None))), FormatConfig()).to_dicts() == []


def test_the_number_of_pairs_of_a_question_is_limited(process) -> None:
    tables = process(*first_turns(("good", 1), ("a", None), ("b", None), ("c", None)))
    assert len(build_rows(tables, FormatConfig(max_pairs_per_question=2)).to_dicts()) == 2
    assert len(build_rows(tables, FormatConfig(max_pairs_per_question=0)).to_dicts()) == 3


def test_only_the_hardest_negatives_are_taken_where_wanted(process) -> None:
    part = process(*first_turns(("good", 1), ("far", None), ("near", 4)))
    rows = build_rows(part, FormatConfig(max_negatives=1)).to_dicts()
    assert pairs(rows) == [(RENDER("good"), RENDER("near"))]
