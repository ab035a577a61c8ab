"""Reading of replies: actions in any format, in tags and as function calls, and orders of candidates."""

import json
import time

import pytest

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.protocols import ActionProtocol
from drag_ray.agent.protocols.ranking import RankingProtocol, read_order
from drag_ray.agent.protocols.registry import PROTOCOLS, get_protocol
from drag_ray.agent.rollout import read_action
from drag_ray.config import load
from drag_ray.engine.generate import Generation
from drag_ray.errors import ConfigError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.types import ActionKind, Evidence

every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=PROTOCOLS)


@every_protocol
def test_rendered_actions_are_read_back_and_end_with_a_stop_string(protocol: ActionProtocol) -> None:
    search = protocol.parse(protocol.render_search('größe "x"', "why"))
    assert (search.query, search.reasoning) == ('größe "x"', "why")
    answer = protocol.parse(protocol.render_answer("340", (Evidence("a.pdf", 7),), "so"))
    assert (answer.answer, answer.citations, answer.reasoning) == ("340", (Evidence("a.pdf", 7),), "so")
    assert protocol.render_search("q").endswith(protocol.stop)
    assert protocol.render_answer("a", (Evidence("f", 1),)).endswith(protocol.stop)


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


def test_an_unknown_protocol_is_refused_with_those_that_there_are() -> None:
    assert load(RunConfig, ["--agent.protocol", "tools"]).agent.protocol == "tools"
    with pytest.raises(ConfigError, match=r"agent\.protocol: Input should be 'tags'.*, got 'xml'"):
        load(RunConfig, ["--agent.protocol", "xml"])
    with pytest.raises(ConfigError, match=f"Known protocols: {', '.join(PROTOCOLS)}"):
        get_protocol("xml")
    text = AgentConfig.model_fields["protocol"].description or ""
    assert "tags: <think>, <search> and <answer>" in text
    assert all(f"{name}: {protocol.summary}" in text for name, protocol in PROTOCOLS.items())


TAGS, RANKING = get_protocol("tags"), get_protocol("ranking")


@pytest.mark.parametrize(
    ("body", "citations"),
    [
        ("17 percent <cite>a b.pdf#7</cite> <cite>c.pdf#12</cite>", (Evidence("a b.pdf", 7), Evidence("c.pdf", 12))),
        ("17 percent <cite>offer.pdf</cite> <cite>terms.pdf#3</cite>", (Evidence("terms.pdf", 3),)),
        (
            "17 percent <cite>offer.pdf, page 4</cite> <cite>terms.pdf#p5</cite> <cite>plan.pdf#6</cite>",
            (Evidence("plan.pdf", 6),),
        ),
        ("17 percent <cite>offer.pdf#2 <cite> a#b.pdf#3 </cite></cite>", (Evidence("offer.pdf", 2), Evidence("a#b.pdf", 3))),
        ("17 percent <cite>offer.pdf#2", (Evidence("offer.pdf", 2),)),
        ("17 percent <cite>#2</cite><cite></cite><cite>plan.pdf#1234567890</cite>", ()),
    ],
)
def test_a_citation_ends_at_its_tag_and_an_unreadable_one_is_left_out(body: str, citations: tuple[Evidence, ...]) -> None:
    action = TAGS.parse(f"<answer>{body}</answer>")
    assert (action.kind, action.answer, action.citations) == (ActionKind.ANSWER, "17 percent", citations)


@pytest.mark.parametrize("part", ["<search>", "<answer>", "<cite>", "<cite>#1", "</cite>", "<answer><cite>"])
def test_hostile_replies_take_linear_time(part: str) -> None:
    started = time.process_time()
    TAGS.parse(part * 50_000)
    TAGS.parse(f"<answer>{part * 50_000}</answer>")
    RANKING.parse(part * 50_000)
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("reply", "reasoning"),
    [
        ("<think>The manual says why.</think>\n<search> rotor \n speed </search>", "The manual says why."),
        ("opened by the template</think><search>rotor speed</search>", "opened by the template"),
        ("I look for it. <search>rotor speed</search>", "I look for it."),
        ("<search>rotor speed</search>", ""),
    ],
)
def test_a_search_is_read_with_its_reasoning_wherever_that_stands(reply: str, reasoning: str) -> None:
    action = TAGS.parse(reply)
    assert (action.kind, action.query, action.reasoning) == (ActionKind.SEARCH, "rotor speed", reasoning)


@pytest.mark.parametrize(
    ("reply", "reasoning"),
    [
        ("<think>perhaps <search>rotor</search>", "perhaps <search>rotor</search>"),
        ("<think>perhaps <answer>340</answer> or", "perhaps <answer>340</answer> or"),
        ("<search>early</search><think>was that right", "was that right"),
    ],
)
def test_nothing_is_read_from_a_reply_that_ends_within_its_reasoning(reply: str, reasoning: str) -> None:
    action = TAGS.parse(reply)
    assert (action.kind, action.query, action.answer, action.reasoning) == (ActionKind.INVALID, "", "", reasoning)
    assert "did not end" in action.problem


def test_the_first_action_after_the_reasoning_counts() -> None:
    action = TAGS.parse("<think>perhaps <search>wrong</search>?</think><search>right</search>")
    assert action.query == "right"
    assert TAGS.parse("perhaps <search>wrong</search>?</think><search>right</search>").query == "right"
    assert TAGS.parse("a</think><search>right</search> <think>b</think>").reasoning == "a"
    assert TAGS.parse("<search>first</search><search>second</search><answer>third</answer>").query == "first"
    assert TAGS.parse("<answer>340</answer> <search>more</search>").answer == "340"


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("rotor speed", "neither"),
        ("", "neither"),
        ("<search>cut off in the mid", "not closed"),
        ("<search>a</answer>", "not closed"),
        ("\x00\ud800<searc", "neither"),
    ],
)
def test_replies_without_a_tag_that_can_be_read_are_invalid_and_say_why(reply: str, problem: str) -> None:
    action = TAGS.parse(reply)
    assert action.kind is ActionKind.INVALID
    assert problem in action.problem


TOOLS = get_protocol("tools")


def write_call(name: str, arguments: object) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def write_search(query: str) -> str:
    return write_call("search_documents", {"query": query})


@pytest.mark.parametrize(
    ("reply", "reasoning"),
    [
        ("<think>The manual says q.</think>\n\n" + write_search(" q \n q "), "The manual says q."),
        ("opened by the template</think>\n" + write_search("q q"), "opened by the template"),
        ("I look for it.\n" + write_search("q q"), "I look for it."),
        ("<think>perhaps " + write_search("wrong") + "</think>" + write_search("q q"), f"perhaps {write_search('wrong')}"),
        (write_search("q q") + write_search("second"), ""),
        (write_call("search_documents", json.dumps({"query": "q q"})), ""),  # arguments as a text
    ],
)
def test_a_search_is_the_first_call_after_the_reasoning(reply: str, reasoning: str) -> None:
    action = TOOLS.parse(reply)
    assert (action.kind, action.query, action.reasoning) == (ActionKind.SEARCH, "q q", reasoning)


def test_an_answer_is_read_with_the_citations_that_can_be_read() -> None:
    cited = [{"file": "a.pdf", "page": 7}, {"file": "b.pdf", "page": "12"}, {"file": "c.pdf"}, "d.pdf", {"file": 3, "page": -1}]
    action = TOOLS.parse(write_call("provide_answer", {"answer": ["340", "rpm"], "citations": cited}))
    assert action.kind is ActionKind.ANSWER
    assert action.answer == "340, rpm"
    assert action.citations == (Evidence("a.pdf", 7), Evidence("b.pdf", 12))


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("rotor speed", "no <tool_call>"),
        ("", "no <tool_call>"),
        ('<tool_call>{"name": "search_documents", ', "not closed"),
        ("<tool_call>rotor</tool_call>", "not JSON"),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", "not JSON"),
        ("<tool_call>[1]</tool_call>", "not a JSON object"),
        (write_call("search_documents", [1]), "arguments is not a JSON object"),
        (write_call("search_documents", "{"), "arguments is not JSON"),
        ("<think>perhaps " + write_search("rotor"), "did not end"),
        (write_call("search_documents", {}), "needs a query"),
        (write_call("search_documents", {"query": 3}), "needs a query"),
        (write_call("provide_answer", {"answer": None}), "needs an answer"),
        (write_call("delete_everything", {}), "no function 'delete_everything'"),
    ],
)
def test_replies_without_a_call_that_can_be_read_are_invalid_and_say_why(reply: str, problem: str) -> None:
    action = TOOLS.parse(reply)
    assert action.kind is ActionKind.INVALID
    assert problem in action.problem


ORDERS = RankingProtocol()


@pytest.mark.parametrize(
    ("text", "order"),
    [
        ("[3, 1, 2]", [3, 1, 2]),
        ("[3,1,2]", [3, 1, 2]),
        (" [ 3 ,\n1, 2, ] ", [3, 1, 2]),
        ("[7]", [7]),
        ("[]", []),
        ("[03]", [3]),
        ("3, 1, 2", None),
        ("[3, one]", None),
        ("[3, -1]", None),
        ("[1.5]", None),
        ("[[1], 2]", None),
        ("[,]", None),
        ("[1 2]", None),
        ("[" + "9" * 10 + "]", None),
        ("[__import__('os').system('touch /tmp/x')]", None),
        ("[n for n in range(10**9)]", None),
        ("[1, ²]", None),
        ("[\u0661]", None),
        ("[" + "1, " * 200_000 + "x]", None),
    ],
)
def test_an_order_is_a_list_of_whole_numbers_and_nothing_else(text: str, order: list[int] | None) -> None:
    assert read_order(text) == order


def test_an_order_is_read_after_its_reasoning_and_as_it_was_rendered() -> None:
    action = ORDERS.parse("<think>Perhaps <answer>[2]</answer>, no.</think>\n<answer>[3, 1]</answer> or <answer>[9]</answer>")
    assert (action.kind, action.query) == (ActionKind.SEARCH, "[3, 1]")
    assert action.reasoning == "Perhaps <answer>[2]</answer>, no."
    protocol = get_protocol("ranking")
    action = protocol.parse(protocol.render_search("[2, 1]", "it shows a bridge"))
    assert (action.query, action.reasoning) == ("[2, 1]", "it shows a bridge")
    assert protocol.render_search("[2, 1]").endswith(protocol.stop)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        ("The third one.", "no <answer>"),
        ("<answer>[3, 1", "not closed"),
        ("<answer>third</answer>", "expected numbers"),
        ("<think>hm", "did not end"),
    ],
)
def test_what_is_no_order_says_why(reply: str, problem: str) -> None:
    action = ORDERS.parse(reply)
    assert action.kind is ActionKind.INVALID
    assert problem in action.problem
