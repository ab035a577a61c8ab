"""What rows say of their prompts as the engine had them, whatever the format."""

import pytest
from factories import asked_at, build_search, build_trajectory

from drag_ray.format.config import FormatConfig
from drag_ray.format.row_format import load_format
from drag_ray.format.rows import OF_TURNS, FormatName

BY_NUMBER_OF_MESSAGES = {2: "opening", 4: "second", 6: "third"}


@pytest.fixture
def part(process):
    """Searches after the same opening that fail, then find; and one found with a hint, of whose prompt nothing is told."""
    searches = [build_search("a", prompt_digest="opening"), build_search("b", 2, prompt_digest="second")]
    return process(
        build_trajectory(*searches, build_search("c", 1, prompt_digest="third"), **asked_at(5)),
        build_trajectory(build_search("d", 3, prompt_digest="opening"), sample_index=1, **asked_at(5)),
        build_trajectory(build_search("e", 1), sample_index=2, hinted=True, id="q1/hinted", **asked_at(5)),
    )


@pytest.mark.parametrize("name", OF_TURNS)
def test_each_row_has_the_digest_of_the_prompt_that_it_shows(part, name: FormatName) -> None:
    row_format = load_format(name)
    taken = part.take(proposed=True, hinted=row_format.learns_from_hinted)
    rows = row_format.build_rows(taken, FormatConfig()).to_dicts()
    assert rows
    for row in rows:
        if "messages" in row:
            places = range(row["num_prompt_messages"], len(row["messages"]), 2)
            assert row["prompt_digests"] == [BY_NUMBER_OF_MESSAGES[place] for place in places]
            assert len(row["prompt_digests"]) == len(row["train_turns"])
        else:
            is_hinted = row["trajectory_id"] == "q1/hinted"
            assert row["prompt_digest"] == ("" if is_hinted else BY_NUMBER_OF_MESSAGES[len(row["prompt"])])
    if name == "sft_query":
        assert {row["prompt_digest"] for row in rows} == {"", "opening"}
