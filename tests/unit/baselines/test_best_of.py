"""Best of n: what there is to choose from, what is known of it, and what is chosen."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from factories import build_page

from drag_ray import artifacts, schemas
from drag_ray.agent.choice import Choice
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.prompts import Prompts
from drag_ray.baselines.baseline import BaselineContext
from drag_ray.baselines.best_of import BestOf, BestOfConfig
from drag_ray.baselines.best_reply import BestReply
from drag_ray.baselines.candidates import LIST_FEATURES, REWARD_FEATURE, CandidateReader
from drag_ray.baselines.gain_model import GainModel
from drag_ray.engine.generate import Generation, Request, Usage
from drag_ray.engine.sampling import PRESETS
from drag_ray.engine.scripted import ScriptedEngine
from drag_ray.errors import TrainError
from drag_ray.search.config import SearchConfig
from drag_ray.search.fusion import fuse_rankings
from drag_ray.search.index import build_index
from drag_ray.search.predictors import compute_idf
from drag_ray.search.searcher import Searcher

QUESTION = "How fast is the rotor?"
EXPAND = AgentConfig(question_words="all", query_mode="expand", question_weight=2.0, max_iterations=1, top_k=1, depth=3)
REWRITE = AgentConfig(query_mode="rewrite", max_iterations=1, top_k=1, depth=3)
TEXTS = ["rotor fast rotor", "rotor limit revolutions", "fuel pump", "turn left", "limit of the fuel"]


@pytest.fixture(scope="module")
def searcher(tmp_path_factory: pytest.TempPathFactory) -> Searcher:
    folder = tmp_path_factory.mktemp("best_of")
    pages = [build_page(page_number=number, text=text) for number, text in enumerate(TEXTS, start=1)]
    artifacts.write_parquet(folder / "pages.parquet", schemas.to_table(pages, schemas.PAGES))
    build_index(folder / "pages.parquet", folder / "index", SearchConfig())
    return Searcher(folder / "index")


def like(feature: str, weight: float = 1.0, bias: float = 0.0, *, has_rewards: bool = False) -> GainModel:
    """Expects a gain of `bias` and `weight` times a feature."""
    names = CandidateReader.list_features(has_rewards=has_rewards)
    weights = [10 * weight if name == feature else 0.0 for name in names]
    weights += [0.0] * (len(names) * (len(names) + 1) // 2)
    return GainModel(names, (0.0,) * len(names), (10.0,) * len(names), tuple(weights), bias)


class Scores:
    """Rewards long replies, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[object, Sequence[str]]] = []

    def __call__(self, messages: object, replies: Sequence[str], tools: object) -> list[float]:
        self.asked.append((messages, replies))
        return [float(len(reply)) for reply in replies]


def choose(
    searcher: Searcher, replies: list[str], model: GainModel, agent: AgentConfig = EXPAND, scores: Scores | None = None
) -> tuple[Choice, ScriptedEngine]:
    """What is chosen where the engine writes these replies, the greedy one first."""
    waiting = iter([f"<search>{reply}</search>" if not reply.startswith("!") else reply for reply in replies])
    engine = ScriptedEngine(lambda _: next(waiting))
    reader = CandidateReader(searcher, agent, (lambda: scores) if scores else None)
    best = BestReply(engine, agent, reader, len(replies), model)
    opening = tuple(Prompts(agent).opening(QUESTION))
    request = Request(opening, PRESETS["high_temp"], max_tokens=9, seed=7, stop=("</search>",))
    return asyncio.run(best(request, QUESTION)), engine


def test_tokens_that_an_endpoint_reports_are_counted(searcher: Searcher) -> None:
    async def reply(request: Request) -> Generation:
        return Generation("<search>limit</search>", (), (), "stop", reported_usage=Usage(5, 7))

    best = BestReply(reply, EXPAND, CandidateReader(searcher, EXPAND), 3, GainModel())
    request = Request(tuple(Prompts(EXPAND).opening(QUESTION)), PRESETS["high_temp"], max_tokens=9, seed=7, stop=("</search>",))
    assert asyncio.run(best(request, QUESTION)).num_drawn_tokens == 21


def list_pages(choice: Choice) -> list[int]:
    return [hit.page_number for hit in choice.hits]


def test_one_reply_is_greedy_and_the_others_are_drawn_each_with_a_seed_of_its_own(searcher: Searcher) -> None:
    _, engine = choose(searcher, ["limit", "fuel", "pump"], GainModel())
    assert [request.sampling for request in engine.requests] == [PRESETS[name] for name in ("greedy", "high_temp", "high_temp")]
    assert len({request.seed for request in engine.requests}) == 3
    first = engine.requests[0]
    assert all(replace(request, sampling=first.sampling, seed=first.seed) == first for request in engine.requests)
    assert [request.seed for request in choose(searcher, ["limit", "fuel"], GainModel())[1].requests] == [
        request.seed for request in engine.requests[:2]
    ]


@pytest.mark.parametrize(("agent", "reply"), [(EXPAND, "<search></search>"), (REWRITE, f"<search>{QUESTION}</search>")])
@pytest.mark.parametrize("bias", [0.0, -0.1])
def test_the_question_stays_unless_a_gain_is_expected(searcher: Searcher, agent: AgentConfig, reply: str, bias: float) -> None:
    choice, _ = choose(searcher, ["limit", "fuel"], like("rbo", 0.0, bias), agent)
    assert choice.generation == Generation(reply, (), (), "stop")
    assert choice.hits == CandidateReader(searcher, agent).search_question(QUESTION)
    assert choice.num_drawn_tokens == len("<search>limit</search>") + len("<search>fuel</search>")
    assert choice.search_s > 0


@pytest.mark.parametrize("agent", [EXPAND, REWRITE])
def test_what_is_expected_to_gain_most_is_chosen_as_it_was_drawn(searcher: Searcher, agent: AgentConfig) -> None:
    choice, _ = choose(searcher, ["rotor", "fuel pump limit", "limit"], like("num_written"), agent)
    assert choice.generation.text == "<search>fuel pump limit</search>"
    assert bytes(choice.generation.completion_token_ids).decode() == choice.generation.text
    assert choice.hits == CandidateReader(searcher, agent).search(QUESTION, "fuel pump limit").found


def test_the_first_of_equal_ones_is_chosen(searcher: Searcher) -> None:
    assert choose(searcher, ["limit", "fuel"], like("rbo", 0.0, 0.1))[0].generation.text == "<search>limit</search>"


def test_the_greedy_reply_is_fused_with_the_question(searcher: Searcher) -> None:
    choice, _ = choose(searcher, ["fuel^9", "limit"], like("is_fused"))
    reader = CandidateReader(searcher, EXPAND)
    found, asked = reader.search(QUESTION, "fuel^9").found, reader.search_question(QUESTION)
    assert choice.generation.text == "<search>fuel^9</search>"
    assert choice.hits == tuple(fuse_rankings([asked, found])[: EXPAND.depth])
    assert choice.hits != found


def test_without_a_greedy_search_nothing_is_fused(searcher: Searcher) -> None:
    choice, _ = choose(searcher, ["!no search", "limit"], like("is_fused"))
    assert choice.generation.text == "<search></search>"


def test_replies_that_cannot_be_read_or_say_the_same_are_no_choice(searcher: Searcher) -> None:
    scores = Scores()
    replies = ["limit", "!I would look for it", " limit ", "", "fuel"]
    choose(searcher, replies, like(REWARD_FEATURE, has_rewards=True), scores=scores)
    [(_, asked)] = scores.asked
    assert asked == [f"<search>{query}</search>" for query in ("", "limit", "limit", "fuel")]  # the second one is fused


@pytest.mark.parametrize("replies", [["!nothing", "!at all"], ["", ""]])
def test_without_a_choice_it_is_the_question(searcher: Searcher, replies: list[str]) -> None:
    choice, _ = choose(searcher, replies, like("rbo", 0.0, 1.0))
    assert choice.generation.text == "<search></search>"
    assert choice.num_drawn_tokens > 0


def test_a_reward_is_that_beyond_the_question_by_the_agents_own_prompt(searcher: Searcher) -> None:
    scores = Scores()
    model = like(REWARD_FEATURE, 1.0, -4.5, has_rewards=True)
    assert choose(searcher, ["fuel", "limit"], model, scores=scores)[0].generation.text == "<search>limit</search>"
    assert choose(searcher, ["fuel"], model, scores=scores)[0].generation.text == "<search></search>"
    assert scores.asked[0][0] == Prompts(EXPAND).opening(QUESTION)


def describe(searcher: Searcher, query: str, agent: AgentConfig, *, fused: bool = False) -> dict[str, float]:
    reader = CandidateReader(searcher, agent)
    asked, candidate = reader.search_question(QUESTION), reader.search(QUESTION, query)
    candidate = reader.fuse(asked, candidate) if fused else candidate
    [row] = reader.compute_features(QUESTION, asked, [candidate])
    return dict(zip(LIST_FEATURES, row, strict=True))


def test_the_features_are_of_what_was_written_what_was_searched_and_what_was_found(searcher: Searcher) -> None:
    """Of the question the terms rotor and fast are in two pages and in one (how is a word of none); limit is in two."""
    described = describe(searcher, "limit rotor", EXPAND)
    idf = {count: compute_idf(count, len(TEXTS)) for count in (0, 1, 2)}
    asked, found = (CandidateReader(searcher, EXPAND).search(QUESTION, query).found for query in ("", "limit rotor"))
    assert [hit.page_number for hit in asked] == [1, 2]
    assert [hit.page_number for hit in found] == [1, 2, 5]
    assert (described["num_written"], described["shared_words"], described["is_fused"]) == (2, 0.5, 0)
    assert described["written_idf"] == pytest.approx(idf[2])
    assert (described["question_num_terms"], described["num_terms"]) == (3, 4)
    assert described["question_mean_idf"] == pytest.approx((idf[0] + idf[1] + idf[2]) / 3)
    assert described["question_top_score"] == pytest.approx(asked[0].score / (2 * (idf[0] + idf[1] + idf[2])))
    assert described["top_score"] == pytest.approx(found[0].score / (2 * (idf[0] + idf[1]) + 4 * idf[2]))
    assert described["question_gap_2"] == described["question_gap_k"] == pytest.approx(asked[0].score - asked[1].score)
    assert described["gap_k"] == pytest.approx(found[0].score - found[2].score)
    # Page 1 holds rotor and fast, page 2 limit as well as rotor; limit is what the question does not have.
    assert found[0].page_number == 1
    assert described["question_coverage"] == described["coverage"] == pytest.approx(2 / 3)
    assert described["new_coverage"] == described["question_new_coverage"] == 0
    assert (described["rank_of_first"], described["score_of_first"]) == (1, 1)
    assert described["jaccard"] == 1
    assert described["rbo"] == pytest.approx((1 + 0.9 + 0.81 * 2 / 3) / 2.71)


def test_another_first_page_is_seen_from_both_lists(searcher: Searcher) -> None:
    described = describe(searcher, "limit^9", EXPAND)
    asked, found = (CandidateReader(searcher, EXPAND).search(QUESTION, query).found for query in ("", "limit^9"))
    assert [hit.page_number for hit in asked] == [1, 2]
    assert [hit.page_number for hit in found] == [2, 5, 1]
    assert (described["new_coverage"], described["question_new_coverage"]) == (1, 0)
    assert described["coverage"] == pytest.approx(1 / 3)  # of rotor, fast and how
    assert described["rank_of_first"] == 3
    assert described["score_of_first"] == pytest.approx(asked[1].score / asked[0].score)
    assert describe(searcher, "fuel^9", REWRITE)["rank_of_first"] == EXPAND.depth + 1


def test_a_fused_list_is_known_by_its_own_search_and_overlaps_more(searcher: Searcher) -> None:
    alone, fused = (describe(searcher, "fuel^9", EXPAND, fused=fused) for fused in (False, True))
    changed = {name for name in alone if alone[name] != fused[name]}
    assert changed == {"rbo", "jaccard", "is_fused"}
    assert fused["rbo"] > alone["rbo"]


@pytest.mark.parametrize("query", ["zzz", "?"])
def test_a_query_that_finds_nothing_has_features_too(searcher: Searcher, query: str) -> None:
    described = describe(searcher, query, REWRITE)
    assert described["top_score"] == described["clarity"] == described["rbo"] == 0
    assert described["question_top_score"] > 0


def test_a_failing_engine_fails_as_it_does_without_choice(searcher: Searcher) -> None:
    async def fail(request: Request) -> Generation:
        raise RuntimeError("gone")

    best = BestReply(fail, EXPAND, CandidateReader(searcher, EXPAND), 2, GainModel())
    with pytest.raises(RuntimeError, match="gone"):
        asyncio.run(best(Request((), PRESETS["default"], 9, 7), QUESTION))


def test_a_reward_model_is_opened_only_where_it_is_asked(searcher: Searcher, tmp_path: Path) -> None:
    artifacts.write_text(tmp_path / "config.json", '{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    context = BaselineContext(EXPAND, searcher, ScriptedEngine(lambda _: "<search>fuel</search>"))
    request = Request((), PRESETS["default"], 9, 7)

    async def ask(model: GainModel) -> str:
        choose_reply = BestOf(BestOfConfig(samples=1), model, tmp_path).build_choose(context)
        return (await choose_reply(request, QUESTION)).generation.text

    assert asyncio.run(ask(like("is_fused"))) == "<search>fuel</search>"
    with pytest.raises(TrainError, match="no reward model"):
        asyncio.run(ask(like(REWARD_FEATURE, has_rewards=True)))
