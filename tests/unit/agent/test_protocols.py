"""What holds for every format of actions, and how one is chosen."""

import pytest

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols.registry import PROTOCOLS, ActionProtocol, get_protocol
from drag_ray.agent.rollout import read_action
from drag_ray.config import load
from drag_ray.engine.generate import Generation
from drag_ray.errors import ConfigError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.types import ActionKind, Evidence

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)


@every_protocol
def test_rendered_actions_are_read_back(protocol: ActionProtocol) -> None:
    search = protocol.parse(protocol.render_search('größe "x"', "why"))
    assert (search.query, search.reasoning) == ('größe "x"', "why")
    answer = protocol.parse(protocol.render_answer("340", (Evidence("a.pdf", 7),), "so"))
    assert (answer.answer, answer.citations, answer.reasoning) == ("340", (Evidence("a.pdf", 7),), "so")


@every_protocol
def test_an_empty_search_means_something_only_where_the_question_is_searched_with_it(protocol: ActionProtocol) -> None:
    for query in ("", " \n "):
        generation = Generation(protocol.render_search(query, "why"), (), (), "stop")
        action = read_action(generation, protocol, may_be_empty=True)
        assert (action.kind, action.query, action.reasoning) == (ActionKind.SEARCH, "", "why")
        action = read_action(generation, protocol, may_be_empty=False)
        assert (action.kind, action.reasoning, action.problem) == (ActionKind.INVALID, "why", "the search is empty")


@every_protocol
def test_the_instructions_name_what_is_wanted_and_the_answer_only_where_one_is_taken(protocol: ActionProtocol) -> None:
    told = protocol.instructions(thinking=False, wanted="words to add", may_answer=True)
    assert "words to add" in told
    assert "answer" in told
    assert "answer" not in protocol.instructions(thinking=False, wanted="words to add", may_answer=False)
    assert "Think first" in protocol.instructions(thinking=True, wanted="words to add", may_answer=True)
    assert "Think first" not in told


@every_protocol
def test_every_rendered_action_ends_with_a_stop_string(protocol: ActionProtocol) -> None:
    assert protocol.render_search("q").endswith(protocol.stop)
    assert protocol.render_answer("a", (Evidence("f", 1),)).endswith(protocol.stop)


def test_an_unknown_protocol_is_refused_when_the_options_are_read() -> None:
    assert load(RunConfig, ["--agent.protocol", "tools"]).agent.protocol == "tools"
    with pytest.raises(ConfigError, match=r"agent\.protocol: Input should be 'tags'.*, got 'xml'"):
        load(RunConfig, ["--agent.protocol", "xml"])


def test_the_option_says_what_an_action_of_each_protocol_looks_like() -> None:
    text = AgentConfig.model_fields["protocol"].description or ""
    assert "tags: <think>, <search> and <answer>" in text
    assert all(f"{name}: {protocol.summary}" in text for name, protocol in PROTOCOLS.items())


def test_an_unknown_protocol_of_a_record_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=f"Known protocols: {', '.join(PROTOCOLS)}"):
        get_protocol("xml")
