import polars as pl

from drag_ray import process
from drag_ray.process.config import FilterName
from drag_ray.process.quality import FAILED, FILTERS, add_drop_reasons, describe_reason


def build_turns(*replies: str, **columns: list) -> pl.DataFrame:
    """Searches of one state of one question, each reply a query."""
    num = len(replies)
    defaults = {
        "question_id": ["q1"] * num,
        "question": ["how fast?"] * num,
        "answers": [["340 rpm"]] * num,
        "hinted": [False] * num,
        "state": [7] * num,
        "action": ["search"] * num,
        "query": list(replies),
        "query_key": list(replies),
        "reply": list(replies),
        "evidence_rank": [None] * num,
        "has_error": [False] * num,
        "is_truncated": [False] * num,
        "is_late": [False] * num,
        "evidence_files": [["manual.pdf"]] * num,
    }
    return pl.DataFrame({**defaults, **columns}, schema_overrides={"evidence_rank": pl.Int32})


def reasons(turns: pl.DataFrame, filters: tuple[FilterName, ...] = process.FILTERS) -> list[str]:
    return add_drop_reasons(turns, filters)["drop_reason"].to_list()


def test_of_equal_replies_in_one_state_the_first_stays() -> None:
    assert reasons(build_turns("a b", "a b", "B a", "c")) == ["", "duplicate", "near_duplicate", ""]
    apart = build_turns("a b", "a b", state=[7, 8])
    assert reasons(apart) == ["", ""]
    assert reasons(build_turns("a b", "a b", question_id=["q1", "q2"])) == ["", ""]


def test_nearly_the_same_query_stays_if_it_found_something_else() -> None:
    assert reasons(build_turns("a b", '"a b"', evidence_rank=[None, 1])) == ["", ""]
    assert reasons(build_turns("a b", '"a b"', evidence_rank=[2, 2])) == ["", "near_duplicate"]


def test_a_dropped_reply_is_no_reason_to_drop_a_fine_one() -> None:
    turns = build_turns("a b", "a b", "a b", is_truncated=[True, False, False], has_error=[False, True, False])
    assert reasons(turns) == ["truncated", "failed", ""]


def test_a_search_in_place_of_the_answer_is_dropped_unless_it_was_cut_as_well() -> None:
    turns = build_turns("a", "b", "c", is_truncated=[True, False, False], is_late=[True, True, False])
    assert reasons(turns) == ["truncated", "last_reply", ""]
    assert reasons(turns, ("truncated",)) == ["truncated", "", ""]


def test_only_the_chosen_filters_drop() -> None:
    turns = build_turns("manual.pdf", "manual.pdf", has_error=[True, False])
    assert reasons(turns, ()) == ["failed", ""]
    assert reasons(turns) == ["failed", "file_name"]


def test_every_reason_is_told_in_words_of_its_own() -> None:
    reasons = (FAILED, *FILTERS)
    assert len({describe_reason(reason) for reason in reasons}) == len(reasons)


def test_what_is_said_twice_is_fine_by_itself_and_nothing_else_that_is_dropped() -> None:
    assert tuple(FILTERS) == process.FILTERS
    assert [name for name, found in FILTERS.items() if found.drops_repeats] == ["duplicate", "near_duplicate"]


def test_a_hinted_query_may_not_name_an_answer_that_the_question_does_not_hold() -> None:
    queries = ("rotor 340 RPM", "rotor speed", "rotor 340", "fast a")
    hinted = build_turns(*queries, hinted=[True] * 4, answers=[["340 rpm", "x"]] * 3 + [["fast", "a"]])
    assert reasons(hinted) == ["told_answer", "", "", ""]
    assert reasons(build_turns("Zu\u0308\u00adrich \uff19", hinted=[True], answers=[["Zürich 9"]])) == ["told_answer"]
    assert reasons(build_turns(*queries)) == [""] * 4
    assert reasons(build_turns("340 rpm", "limit 340 rpm", hinted=[False, True])) == ["", "told_answer"]
