"""An endpoint as an engine: what it is asked, what is made of its answers, refusals that pass, and the end of a budget."""

import asyncio
import base64
import io
import json
import time
from pathlib import Path
from typing import Any

import pytest
from chat_server import Answer, ChatServer, serve_chat
from PIL import Image
from pydantic import ValidationError

from drag_ray.config import load
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.endpoints.endpoint import UNSAID, EndpointEngine, build_endpoint_engine, restore_stop
from drag_ray.engine.endpoints.spending import Spending
from drag_ray.engine.generate import Generation, ImageSource, Request, Usage
from drag_ray.engine.sampling import PRESETS
from drag_ray.errors import BudgetError, ConfigError, PromptTooLongError, RolloutError
from drag_ray.pipeline.run_config import RunConfig

STOPS = ("</search>", "</answer>")


def build_config(served: ChatServer, seeds: bool = True, **endpoint: Any) -> EngineConfig:
    return EngineConfig.model_validate(
        {"backend": "openai", "model": "teacher", "seeds": seeds, "endpoint": {"address": served.address, **endpoint}}
    )


def build_engine(served: ChatServer, path: Path, images: ImageSource | None = None, **options: Any) -> EndpointEngine:
    return build_endpoint_engine(path / "spending.jsonl", build_config(served, **options), images, ())


def build_request(content: Any = "How fast?", preset: str = "default", seed: int = 7) -> Request:
    return Request(({"role": "user", "content": content},), PRESETS[preset], 64, seed, STOPS)


def draw(engine: EndpointEngine, *requests: Request) -> list[Generation]:
    async def draw_all() -> list[Generation]:
        try:
            return await asyncio.gather(*map(engine, requests or (build_request(),)))
        finally:
            await engine.close()

    return asyncio.run(draw_all())


def test_a_request_says_how_the_reply_is_drawn_and_carries_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEACHER_KEY", "a-secret")
    with serve_chat(lambda body, number: Answer()) as served:
        [generation] = draw(build_engine(served, tmp_path, key_variable="TEACHER_KEY", parameters={"user": "drag"}))
    [asked] = served.asked
    expected = {"model": "teacher", "temperature": 0.7, "top_p": 0.95, "max_tokens": 64, "stop": list(STOPS), "seed": 7}
    assert asked == {**expected, "user": "drag", "messages": [{"role": "user", "content": "How fast?"}]}
    assert served.keys == ["Bearer a-secret"]
    assert (generation.text, generation.usage) == ("<search>rotor</search>", Usage(100, 10))
    assert generation.prompt_token_ids == generation.completion_token_ids == generation.completion_logprobs == ()


def test_what_an_endpoint_refuses_is_left_out_and_greedy_replies_need_no_seed(tmp_path: Path) -> None:
    with serve_chat(lambda body, number: Answer()) as served:
        engine = build_engine(served, tmp_path, omits=("temperature", "stop"), parameters={"max_completion_tokens": 9})
        draw(engine, build_request(preset="greedy"), build_request(preset="diverse"))
    greedy, diverse = sorted(served.asked, key=len)
    assert greedy.keys() == {"model", "messages", "top_p", "max_tokens", "max_completion_tokens"}
    assert diverse["repetition_penalty"] == 1.1


def test_page_images_travel_as_data_urls(tmp_path: Path) -> None:
    images = ImageSource(lambda key: Image.new("RGB", (3, 2), key), per_prompt=1)
    content = [{"type": "text", "text": "page"}, {"type": "image", "image": "red"}]
    with serve_chat(lambda body, number: Answer()) as served:
        draw(build_engine(served, tmp_path, images), build_request(content))
    text, image = served.asked[0]["messages"][0]["content"]
    assert text == {"type": "text", "text": "page"}
    data = base64.b64decode(image["image_url"]["url"].removeprefix("data:image/png;base64,"))
    assert Image.open(io.BytesIO(data)).getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize(
    ("text", "stop_reason", "expected"),
    [
        ("<search>rotor", UNSAID, "<search>rotor</search>"),
        ("I look.\n<answer>340 <cite>a#1</cite>", UNSAID, "I look.\n<answer>340 <cite>a#1</cite></answer>"),
        ("<search>rotor</search>", UNSAID, "<search>rotor</search>"),
        ("no action", UNSAID, "no action"),
        ("<search>a</search> and <answer>b", UNSAID, "<search>a</search> and <answer>b</answer>"),
        ("what it wrote", "</search>", "what it wrote</search>"),
        ("<search>rotor", None, "<search>rotor"),
        ("<search>rotor", 151645, "<search>rotor"),
    ],
)
def test_the_stop_string_that_an_endpoint_leaves_away_is_part_of_the_reply(text: str, stop_reason: Any, expected: str) -> None:
    assert restore_stop(text, STOPS, stop_reason) == expected


def test_a_reply_that_was_cut_or_ended_by_itself_stays_open(tmp_path: Path) -> None:
    choices: list[dict[str, Any]] = [{"stop_reason": None}, {"stop_reason": "</search>"}, {}]
    with serve_chat(lambda body, number: Answer("<search>rotor", choice=choices[body["seed"]])) as served:
        drawn = draw(build_engine(served, tmp_path), *(build_request(seed=seed) for seed in range(3)))
    assert [one.text for one in drawn] == ["<search>rotor", "<search>rotor</search>", "<search>rotor</search>"]
    answers = [Answer("<search>rot", finish_reason="length"), Answer("<search>a", message={"reasoning_content": "Hm."})]
    with serve_chat(lambda body, number: answers[body["seed"]]) as served:
        cut, thought = draw(build_engine(served, tmp_path), build_request(seed=0), build_request(seed=1))
    assert (cut.text, cut.finish_reason) == ("<search>rot", "length")
    assert thought.text == "<think>Hm.</think>\n<search>a</search>"


@pytest.mark.seconds
def test_a_429_is_waited_for_as_long_as_it_says_and_a_5xx_is_repeated(tmp_path: Path) -> None:
    refusals = [Answer(status=429, headers={"Retry-After": "1"}), Answer(status=503), Answer()]
    with serve_chat(lambda body, number: refusals[number]) as served:
        started = time.monotonic()
        [generation] = draw(build_engine(served, tmp_path))
        assert time.monotonic() - started >= 1
    assert (len(served.asked), generation.text) == (3, "<search>rotor</search>")


@pytest.mark.seconds
def test_what_repeating_does_not_mend_is_an_error_of_the_rollout(tmp_path: Path) -> None:
    too_long = Answer(status=400, error="This model's maximum context length is 10 tokens")
    cases = [(too_long, PromptTooLongError, "10 tokens"), (Answer(status=401, error="who?"), RolloutError, "answered 401.*who")]
    cases += [
        (Answer(status=503), RolloutError, "answered 503"),
        (Answer(finish_reason="content_filter"), RolloutError, "filter"),
    ]
    for answer, error, words in cases:
        with serve_chat(lambda body, number, answer=answer: answer) as served, pytest.raises(error, match=words):
            draw(build_engine(served, tmp_path, max_retries=0))
        assert len(served.asked) == 1


def test_an_endpoint_that_is_not_there_is_named_and_no_more_requests_are_under_way_than_allowed(tmp_path: Path) -> None:
    with serve_chat(lambda body, number: Answer()) as served:
        address = served.address
    with pytest.raises(RolloutError, match=f"{address} did not answer in 1 tries"):
        draw(build_engine(served, tmp_path, max_retries=0))
    with serve_chat(lambda body, number: Answer(seconds=0.05)) as served:
        draw(build_engine(served, tmp_path, max_requests=2), *[build_request(seed=seed) for seed in range(6)])
    assert (len(served.asked), served.most_at_once) == (6, 2)


def test_requests_are_begun_no_more_often_than_allowed(tmp_path: Path) -> None:
    with serve_chat(lambda body, number: Answer()) as served:
        engine, started = build_engine(served, tmp_path, requests_per_minute=600), time.monotonic()
        draw(engine, *[build_request(seed=seed) for seed in range(4)])
        assert time.monotonic() - started >= 0.3
        engine, started = build_engine(served, tmp_path, tokens_per_minute=33_000, max_requests=1), time.monotonic()
        draw(engine, *[build_request(seed=seed) for seed in range(2)])
        assert time.monotonic() - started >= 0.2


def test_a_spent_budget_ends_it_and_a_larger_one_goes_on_from_what_was_spent(tmp_path: Path) -> None:
    prices = {"prompt_price": 100.0, "completion_price": 1000.0, "max_requests": 1}  # 0.02 a reply
    with serve_chat(lambda body, number: Answer()) as served:
        with pytest.raises(BudgetError, match=r"have cost 0\.04, and the budget is 0\.03.*larger endpoint\.budget"):
            draw(build_engine(served, tmp_path, budget=0.03, **prices), *[build_request()] * 4)
        assert len(served.asked) == 2
        with pytest.raises(BudgetError):
            draw(build_engine(served, tmp_path, budget=0.04, **prices))
        draw(build_engine(served, tmp_path, budget=0.05, **prices))
        terms = build_config(served, **prices).endpoint
    assert len(served.asked) == 3
    assert Spending(tmp_path / "spending.jsonl", terms).compute_cost() == pytest.approx(0.06)


def test_a_reply_that_is_withheld_is_paid_for_too(tmp_path: Path) -> None:
    with serve_chat(lambda body, number: Answer(finish_reason="content_filter")) as served:
        with pytest.raises(RolloutError):
            draw(build_engine(served, tmp_path))
        terms = build_config(served, prompt_price=1e6).endpoint
    assert Spending(tmp_path / "spending.jsonl", terms).compute_cost() == 100


def test_two_processes_know_what_the_other_has_spent(tmp_path: Path) -> None:
    terms = EngineConfig.model_validate({"endpoint": {"prompt_price": 1e6, "budget": 5}}).endpoint
    one, other = (Spending(tmp_path / "spending.jsonl", terms) for _ in range(2))
    one.add(Usage(2, 0))
    other.check()
    one.add(Usage(3, 0))
    with pytest.raises(BudgetError):
        other.check()


def test_neither_keys_nor_terms_of_an_endpoint_are_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEACHER_KEY", raising=False)
    with serve_chat(lambda body, number: Answer()) as served, pytest.raises(ConfigError, match="'TEACHER_KEY': not set"):
        build_engine(served, tmp_path, key_variable="TEACHER_KEY")
    with pytest.raises(ConfigError, match="not the key itself") as raised:
        load(RunConfig, ["--engine.endpoint.key-variable", "sk-abc123"])
    assert "sk-abc" not in str(raised.value)
    terms = {"key_variable": "A_KEY", "budget": 1.0, "prompt_price": 1.0, "max_requests": 3}
    first, second = (EngineConfig.model_validate({"endpoint": {"address": "http://a", **some}}) for some in ({}, terms))
    assert first.model_dump() == second.model_dump()
    assert "A_KEY" not in json.dumps(second.model_dump(mode="json"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend": "openai"}, "needs the address"),
        ({"backend": "openai", "endpoint": {"address": "localhost:80"}}, "http:// or https://"),
        ({"backend": "openai", "endpoint": {"address": "http://a"}, "adapter": "x"}, "takes no adapter"),
        ({"endpoint": {"budget": 1}}, "a budget needs prices"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        EngineConfig.model_validate(options)
