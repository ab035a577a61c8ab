"""Lists of trajectories, and what the terminal shows of one."""

import dataclasses
from math import log2
from pathlib import Path

import pytest
from factories import build_answer, build_call, build_trajectory, change, write_trajectories
from transcript_cases import BY_FIRST, FAILED, FOUND, MISSED, ORDERED

from drag_ray import schemas
from drag_ray.errors import ArtifactError, DataError
from drag_ray.transcripts.listing import Selection, choose, read_listing, read_trajectories
from drag_ray.transcripts.show import Terminal
from drag_ray.transcripts.transcript import build_transcript


def read_ids(run_dir: Path, **selection: object) -> list[str]:
    return choose(read_listing(run_dir), Selection(**selection))["id"].to_list()  # type: ignore[arg-type]


def test_the_listing_says_what_each_rollout_came_to(run_dir: Path) -> None:
    listing = read_listing(run_dir).sort("id")
    columns = ["id", "outcome", "turns", "searches", "question_rank", "first_rank", "best_rank", "gain", "tokens"]
    assert listing.select(columns).rows() == [
        ("q1/default/0", "found", 4, 2, 7, 7, 2, pytest.approx(1 / log2(3) - 1 / log2(8)), 8),
        ("q1/default/1", "found", 1, 1, 1, 1, 1, 0.0, 2),
        ("q10/default/0", "errors", 0, 0, None, None, None, None, 0),
        ("q2/default/0", "not-found", 1, 1, None, None, None, 0.0, 2),
    ]


@pytest.mark.parametrize(
    ("selection", "ids"),
    [
        ({"outcome": "found"}, ["q1/default/0", "q1/default/1"]),
        ({"outcome": "not-found"}, ["q2/default/0"]),
        ({"outcome": "errors"}, ["q10/default/0"]),
        ({"question": "TAIL rotor"}, ["q2/default/0"]),
        ({"id": "q1"}, ["q1/default/0", "q1/default/1"]),
        ({"id": "q1/default/1"}, ["q1/default/1"]),
        ({"sort": "gain", "outcome": "found"}, ["q1/default/0", "q1/default/1"]),
        ({"sort": "rank"}, ["q1/default/1", "q1/default/0", "q10/default/0", "q2/default/0"]),
        ({"sort": "turns"}, ["q1/default/0", "q1/default/1", "q2/default/0", "q10/default/0"]),
        ({"sort": "seconds"}, ["q2/default/0", "q1/default/0", "q1/default/1", "q10/default/0"]),
    ],
)
def test_what_is_asked_for_is_chosen_in_its_order(run_dir: Path, selection: dict[str, str], ids: list[str]) -> None:
    assert read_ids(run_dir, **selection) == ids


def test_whole_trajectories_come_in_the_order_of_their_listing_from_runs_stages_folders_and_files(run_dir: Path) -> None:
    chosen = choose(read_listing(run_dir), Selection(sort="rank"))
    written = schemas.to_table([BY_FIRST, FOUND, FAILED, MISSED], schemas.TRAJECTORIES).to_pylist()
    assert [schemas.to_row(trajectory) for _, trajectory in read_trajectories(chosen)] == written
    for path, count in (
        (run_dir, 4),
        (run_dir / "collect", 4),
        (run_dir / "collect" / "trajectories", 3),
        (run_dir / "collect" / "failures" / "3.parquet", 1),
    ):
        assert read_listing(path).height == count


def test_an_evaluation_names_its_policies_and_of_a_list_the_last_order_counts(tmp_path: Path) -> None:
    for engine, policies in (("engine1", ("prompted", "base")), ("engine2", ("tuned",))):
        trajectories = [change(MISSED, policy=policy) for policy in policies]
        write_trajectories(tmp_path / "evaluate" / "rollouts" / engine / "trajectories" / "1.parquet", trajectories)
    assert choose(read_listing(tmp_path / "evaluate"), Selection())["policy"].to_list() == ["base", "prompted", "tuned"]
    listing = read_listing(write_trajectories(tmp_path / "some.parquet", [ORDERED]))
    columns = ["outcome", "turns", "searches", "question_rank", "first_rank", "best_rank"]
    assert listing.select(columns).rows() == [("found", 3, 2, 7, 3, 3)]


def test_where_nothing_is_to_be_read_or_matches_the_error_says_so(run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file or folder"):
        read_listing(tmp_path / "nowhere")
    with pytest.raises(DataError, match="no trajectories there"):
        read_listing(run_dir / "index" / "page_images")
    with pytest.raises(DataError, match=r"pages\.parquet: no column 'id' in this trajectories table"):
        read_listing(run_dir / "index")
    with pytest.raises(DataError, match="its files hold no trajectory"):
        read_listing(write_trajectories(tmp_path / "empty.parquet", []))
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    with pytest.raises(ArtifactError, match=r"cut\.parquet: not what was written \(.*\)\. Remove it and collect again"):
        read_listing(tmp_path / "cut.parquet")
    with pytest.raises(DataError, match=r"none of 4 trajectories is wanted \(outcome found, question 'zeppelin'"):
        choose(read_listing(run_dir), Selection("found", "zeppelin"))


PLAIN = Terminal(use_color=False, width=80)


def test_a_transcript_tells_the_whole_rollout() -> None:
    lines = PLAIN.format_transcript(build_transcript("tuned", FOUND)).splitlines()
    text = "\n".join(lines)
    assert "How fast may the rotor turn?" in lines
    assert "evidence: manual.pdf#7   answer: 340 rpm" in lines
    first, second = text.index("1. search  2 tokens, 0.5 s"), text.index("2. invalid")
    assert "evidence at rank 7, not shown, reward 0.00" in text[first:second]
    assert "manual.pdf#7" not in text[first:second]  # three pages were shown
    assert "Results of step 2" in text[second:]  # what the policy was told of its invalid reply
    assert "     2  manual.pdf#7  18.00  ◀ evidence" in lines
    assert "   evidence at rank 2, reward 0.67" in lines
    assert "   cut at the token limit" in lines
    assert "   cites manual.pdf#7  evidence" in lines
    assert lines[-1] == "found, best rank 2, ended by answer; 4 turns, 8 tokens, 1.0 s"


def test_a_search_that_left_out_parts_says_so_and_an_order_of_candidates_is_shown_as_one() -> None:
    turns = (change(FOUND.turns[0], partial_search=True), *FOUND.turns[1:])
    text = "".join(PLAIN.format_transcript(build_transcript("tuned", dataclasses.replace(FOUND, turns=turns))))
    assert text.count("not shown, without the costly parts of the query (search.max_query_ms)") == 1
    lines = PLAIN.format_transcript(build_transcript("", ORDERED)).splitlines()
    assert "the order before: evidence at rank 7" in lines
    place = lines.index("1. order  2 tokens, 0.5 s")
    assert lines[place + 1] == "   the window in the order 3, 1, 2"
    assert "   the window as it was" in lines
    assert lines[-1].startswith("found, rank 3, ended by")


def test_calls_of_tools_are_shown_with_what_they_returned() -> None:
    calls = (build_call(), build_call(tool_error="no file \x1b[2J"))
    text = PLAIN.format_transcript(build_transcript("tuned", build_trajectory(*calls, build_answer())))
    lines = text.splitlines()
    assert "1. tool  2 tokens, 0.8 s" in lines
    assert '   grep {"file": "manual.pdf", "text": "rpm"}' in lines
    assert "   Results of step 2: 0 pages." in lines
    assert "\x1b" not in text


def test_an_expanded_question_is_shown_with_what_was_added_and_what_it_finds_alone() -> None:
    rollout = change(FOUND, query_mode="expand", question_weight=2.0)
    lines = PLAIN.format_transcript(build_transcript("", rollout)).splitlines()
    assert "the question alone: evidence at rank 7" in lines
    assert "   question^2 + rotor speed" in lines
    nothing = change(rollout, turns=(dataclasses.replace(FOUND.turns[0], query=""),), question_rank=None)
    lines = PLAIN.format_transcript(build_transcript("", nothing)).splitlines()
    assert "the question alone: no evidence among the first 10" in lines
    assert "   question^2 + nothing" in lines
    assert "the question alone" not in PLAIN.format_transcript(build_transcript("", MISSED))


def test_control_characters_never_and_colours_only_if_wanted_reach_the_terminal() -> None:
    for use_color in (False, True):
        text = Terminal(use_color, 80).format_transcript(build_transcript("", FOUND))
        assert "\x1b[2J" not in text
        assert "It turns.�[2J" in text
    plain = PLAIN.format_transcript(build_transcript("", FOUND))
    coloured = Terminal(use_color=True, width=80).format_transcript(build_transcript("", FOUND))
    assert "\033" not in plain
    assert "\033[32mevidence at rank 2, reward 0.67\033[0m" in coloured


def test_a_rollout_without_a_reply_shows_its_error_and_an_odd_conversation_is_left_out() -> None:
    lines = PLAIN.format_transcript(build_transcript("", FAILED)).splitlines()
    assert lines[-2:] == ["failed, ended by max_iterations; 0 turns, 0 tokens, 1.0 s", "RolloutError: engine gone"]
    for messages in ("", "{}", '[{"role": "user"}]', "[1]"):
        transcript = build_transcript("", dataclasses.replace(MISSED, messages=messages))
        assert transcript.opening == ()
        assert "no evidence among the first 10" in PLAIN.format_transcript(transcript)


def test_the_list_has_a_line_for_each_and_says_what_is_left_out(run_dir: Path) -> None:
    listing = read_listing(run_dir).sort("id").head(3)
    lines = PLAIN.format_list(listing, 4).splitlines()
    assert lines[0].split() == ["outcome", "question", "first", "best", "gain", "turns", "tokens", "seconds", "id", "question"]
    assert lines[1].split()[:9] == ["found", "7", "7", "2", "+0.30", "4", "8", "1.0", "q1/default/0"]
    assert lines[3].split()[:9] == ["errors", "-", "-", "-", "-", "0", "0", "1.0", "q10/default/0"]
    assert lines[4].startswith("1 more; see --limit")


@pytest.mark.parametrize("width", [1, 80, 300])
def test_long_questions_are_cut_to_one_line(run_dir: Path, width: int) -> None:
    lines = Terminal(use_color=False, width=width).format_list(read_listing(run_dir), 4).splitlines()
    assert len(lines) == 5
