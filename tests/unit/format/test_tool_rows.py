"""Rows of every format: of rollouts that call tools, with digests of their prompts, and none of questions without evidence."""

import json

import pytest
from embedded_tokenizer import load_shared_tokenizer
from factories import asked_at, build_answer, build_call, build_question, build_search, build_trajectory

from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.engine.conversation import read_conversation
from drag_ray.engine.models.tokens import IGNORED_LABEL, Mask, tokenize_conversation
from drag_ray.format.config import FormatConfig
from drag_ray.format.layout import Layout
from drag_ray.format.row_format import load_format
from drag_ray.format.rows import OF_TURNS, FormatName
from drag_ray.tools.registry import load_toolset
from drag_ray.tools.search import ANSWER
from drag_ray.types import Trajectory

TOOLS = json.dumps(get_protocol("tools").list_functions(load_toolset(("search", "read_page", "grep")).functions))
RENDER = get_protocol("tools").render_search


def search(query: str, rank: int | None):
    return build_search(query, rank, raw_text=RENDER(query))


def roll_out(sample_index: int, *turns) -> Trajectory:
    fields = {"protocol": "tools", "tools": TOOLS, "query_mode": "rewrite", **asked_at(6)}
    return build_trajectory(*turns, sample_index=sample_index, **fields)


@pytest.fixture
def part(process):
    broken = build_call("read_page", tool_error="no page", raw_text="<tool_call>broken</tool_call>")
    answer = build_answer(raw_text=get_protocol("tools").render_answer("340 rpm"))
    return process(
        roll_out(0, search("rotor", None), build_call(), broken, search("rotor rpm", 1), answer),
        roll_out(1, search("blade", 8), build_call("read_page", raw_text="<tool_call>other</tool_call>"), search("rpm", None)),
        roll_out(2, search("rotor limit", 2), answer),
    )


def build(part, name: str) -> list[dict]:
    row_format = load_format(name)
    rows = row_format.build_rows(part.own, FormatConfig())
    tools = part.trajectories.select("trajectory_id", "tools")
    return Layout(has_tools=True).apply(rows, row_format.schema, tools).to_pylist()


@pytest.mark.parametrize("name", OF_TURNS)
def test_every_format_has_rows_that_show_the_functions(part, name: str) -> None:
    rows = build(part, name)
    assert rows
    assert {row["tools"] for row in rows} == {TOOLS}


@pytest.mark.parametrize("name", ["sft_trajectory", "rejection"])
def test_calls_that_worked_are_learned_with_the_search_that_rests_on_them(part, name: str) -> None:
    (row,) = (row for row in build(part, name) if row["trajectory_id"] == "q1-0")
    learned = row["train_turns"]
    assert learned[:4] == ([False, True, False, True] if name == "sft_trajectory" else [True, True, False, True])


@pytest.mark.seconds
@pytest.mark.parametrize("mask", ["search_only", "search_think"])
def test_masks_of_searches_let_calls_through(part, mask: Mask) -> None:
    (row,) = (row for row in build(part, "sft_trajectory") if row["trajectory_id"] == "q1-0")
    tokenizer = load_shared_tokenizer()
    labels = tokenize_conversation(read_conversation(row), tokenizer, mask, ANSWER.name)["labels"]
    learned = tokenizer.decode([label for label in labels if label != IGNORED_LABEL])
    assert learned == row["messages"][4]["content"] + row["messages"][8]["content"]


def test_of_a_conversation_with_calls_the_replies_are_learned_and_no_observation(part) -> None:
    (row,) = (row for row in build(part, "sft_trajectory") if row["trajectory_id"] == "q1-0")
    tokenizer = load_shared_tokenizer()
    tokens = tokenize_conversation(read_conversation(row), tokenizer)
    labels = tokens["labels"]
    learned = tokenizer.decode([label for label in labels if label != IGNORED_LABEL])
    replies = [message["content"] for message in row["messages"] if message["role"] == "assistant"]
    assert learned == f"{replies[1]}<|im_end|>{replies[3]}<|im_end|>"
    rest = tokenizer.decode([token for token, label in zip(tokens["input_ids"], labels, strict=True) if label == IGNORED_LABEL])
    assert "Results of step 2" in rest
    assert replies[0] in rest


BY_NUMBER_OF_MESSAGES = {2: "opening", 4: "second", 6: "third"}


@pytest.fixture
def digested(process):
    """Searches after the same opening that fail, then find; and one found with a hint, of whose prompt nothing is told."""
    searches = [build_search("a", prompt_digest="opening"), build_search("b", 2, prompt_digest="second")]
    return process(
        build_trajectory(*searches, build_search("c", 1, prompt_digest="third"), **asked_at(5)),
        build_trajectory(build_search("d", 3, prompt_digest="opening"), sample_index=1, **asked_at(5)),
        build_trajectory(build_search("e", 1), sample_index=2, hinted=True, id="q1/hinted", **asked_at(5)),
    )


@pytest.mark.parametrize("name", OF_TURNS)
def test_each_row_has_the_digest_of_the_prompt_that_it_shows(digested, name: FormatName) -> None:
    row_format = load_format(name)
    taken = digested.take(proposed=True, hinted=row_format.learns_from_hinted)
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


@pytest.mark.parametrize("name", OF_TURNS)
def test_no_row_is_built_from_a_question_without_evidence(process, name: FormatName) -> None:
    unanswerable = build_question(id="none", question="Is there a page?", evidence=())
    turns = (build_search("rotor"), build_search("rotor speed", 1), build_answer())
    records = [
        build_trajectory(*turns, question=question, sample_index=sample, id=f"{question.id}-{sample}")
        for question in (build_question(id="some"), unanswerable)
        for sample in range(2)
    ]
    part = process(*records)
    rows = load_format(name).build_rows(part, FormatConfig(formats=(name,)))
    assert "none" not in rows["question_id"].to_list()
