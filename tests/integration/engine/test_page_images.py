"""Pages shown as images: from a PDF through the store to a vision-language model in vLLM (random weights, two layers)."""

import asyncio
import base64
import dataclasses
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from app_settings import build_app_settings
from engine_process import run_in_process
from factories import build_question
from PIL import Image
from qwen3_vl_shapes import IMAGE_TOKENS
from reportlab.pdfgen.canvas import Canvas
from small_index import write_index
from transformers import AutoProcessor, AutoTokenizer, Qwen3VLForConditionalGeneration
from vision_engine import SharedEngine, VisionEngine, configure

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.record import AgentRecord
from drag_ray.agent.task import Policy
from drag_ray.cluster.metrics import Recorder
from drag_ray.corpus.config import CorpusConfig
from drag_ray.corpus.image_store import DIR_NAME, ImageStore
from drag_ray.corpus.question_images import QuestionImages
from drag_ray.corpus.readers.documents import Span, read_document
from drag_ray.corpus.readers.page_reader import PageReader
from drag_ray.engine.config import EngineConfig
from drag_ray.engine.generate import Generation, ImageSource, Request, list_images
from drag_ray.engine.image_inputs import ImageInputs, ServedImageInputs
from drag_ray.engine.sampling import PRESETS
from drag_ray.engine.vllm import VllmEngine, build_engine_args, build_image_options
from drag_ray.engine.vllm_client import VllmClient
from drag_ray.errors import PromptTooLongError
from drag_ray.questions.config import QuestionsConfig
from drag_ray.questions.drafts import DRAFT, Draft
from drag_ray.questions.links import Order
from drag_ray.questions.pages import PageText
from drag_ray.questions.writer import DRAFT_COLUMN, Chunk, QuestionWriter
from drag_ray.rollout import journal
from drag_ray.rollout.folder import BEGUN_DIR_NAME
from drag_ray.rollout.options import WorkerOptions
from drag_ray.rollout.plan import build_plan, cut_chunks
from drag_ray.rollout.worker import RolloutWorker
from drag_ray.search.searcher import Searcher
from drag_ray.serve.config import ServeConfig
from drag_ray.serve.ingress.limits import Limits
from drag_ray.serve.openai_app import build_serving_args
from drag_ray.serve.search.messages import SearchRequest
from drag_ray.serve.search.request_images import EndpointImages
from drag_ray.serve.search.retrieval import Retrieval
from drag_ray.serve.search.search_service import SearchService
from drag_ray.serve.served_models import ServedModels
from drag_ray.serve.settings import AppSettings
from drag_ray.types import Evidence, Page, Trajectory

NUM_PAGES = 3
SCRIPT = ("<search>rotor</search>", "<search>spar</search>", "<answer>340 rpm</answer>")


class ScriptedText:
    """A real engine whose replies are replaced by a script: random weights write no searches."""

    def __init__(self, engine: VllmEngine) -> None:
        self.engine = engine

    async def __call__(self, request: Request) -> Generation:
        turn = sum(message["role"] == "assistant" for message in request.messages)
        return dataclasses.replace(await self.engine(request), text=SCRIPT[turn])


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Page]]:
    """A PDF's pages with their pictures, in a folder of their own."""
    folder = tmp_path_factory.mktemp("documents")
    canvas = Canvas(str(folder / "wing.pdf"), pagesize=(300, 400))
    for number in range(NUM_PAGES):
        canvas.setFillGray(number / 4)
        canvas.rect(50, 50, 100 + 30 * number, 200, fill=True)
        canvas.drawString(72, 300, ("Rotor speed", "Spar loads and rotor", "Fuel")[number])
        canvas.showPage()
    canvas.save()
    reader = PageReader(CorpusConfig(ocr="off", page_images=True, page_image_dpi=72), ImageStore(folder / DIR_NAME))
    found, problems = read_document(Span(folder / "wing.pdf"), folder, reader)
    assert not problems
    return folder, found


def look_at(*images: str) -> Request:
    """A request that shows images."""
    parts = [{"type": "text", "text": "What is this?"}, *({"type": "image", "image": image} for image in images)]
    return Request(({"role": "user", "content": parts},), PRESETS["greedy"], max_tokens=4, seed=0)


async def roll_out_and_look(engine: SharedEngine, options: WorkerOptions, requests: list[Request]) -> list[Generation]:
    """Run one rollout of the script, then the requests; the replies to the latter."""

    def build_engine(config: EngineConfig, images: ImageSource | None, adapters: Sequence[str]) -> ScriptedText:
        assert images
        engine.open_image = images.open
        return ScriptedText(engine)

    worker = RolloutWorker(dataclasses.replace(options, build_engine=build_engine))
    [chunk] = cut_chunks(build_plan([build_question()], ("greedy",), 1, run_seed=0), 1)
    await worker(chunk)
    return [await engine(request) for request in requests]


@pytest.fixture(scope="module")
def collected(
    vision_engine: VisionEngine, pages: tuple[Path, list[Page]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Trajectory, list[Generation]]:
    """One rollout of the script over those pages, and replies to requests with images."""
    folder = tmp_path_factory.mktemp("run")
    write_index(folder, pages[1], [])
    options = WorkerOptions(
        run_dir=folder / "collect",
        index_dir=folder / "search_index",
        agent=AgentConfig(query_mode="rewrite", page_view="image", image_searches=1, max_iterations=3, top_k=2, max_tokens=4),
        engine=configure(vision_engine.model),
        policies={"": Policy("tiny")},
        concurrent_rollouts=2,
        flush_s=0,
        image_dirs=(pages[0] / DIR_NAME,),
    )
    journal.begin_attempt(options.run_dir)
    first, _, third = (page.image for page in pages[1])
    replies = vision_engine.call(roll_out_and_look, options, [look_at(first, third), look_at(first, third)])
    [row] = journal.read_trajectories(options.run_dir).to_pylist()
    return schemas.to_trajectory(row), replies


def test_the_trajectory_names_the_images_and_the_prompts_hold_their_places(collected, pages, model) -> None:
    trajectory, _ = collected
    assert trajectory.error == ""
    assert [turn.query for turn in trajectory.turns] == ["rotor", "spar", ""]
    images = {page.page_number: page.image for page in pages[1]}
    messages = json.loads(trajectory.messages)
    assert list_images(messages) == [images[hit.page_number] for turn in trajectory.turns for hit in turn.ranking.hits[:2]]
    tokenizer = AutoTokenizer.from_pretrained(model)
    places = [turn.reply.prompt_token_ids.count(tokenizer.convert_tokens_to_ids(IMAGE_TOKENS[2])) for turn in trajectory.turns]
    assert places == [0, 2, 1]  # one for each image that is still shown: the first search's two are hidden behind the second's


def test_the_model_sees_what_is_on_the_pages(collected, pages, model) -> None:
    """The engine's log-probabilities are those of transformers for the same pages, and of no other page."""
    _, (generation, again) = collected
    folder, found = pages
    reference = Qwen3VLForConditionalGeneration.from_pretrained(model, dtype=torch.float32)
    processor = AutoProcessor.from_pretrained(model)

    def compute_expected(generation: Generation, *images: str) -> list[float]:
        text = processor.tokenizer.decode(generation.prompt_token_ids)
        opened = [ImageStore(folder / DIR_NAME).open(image) for image in images]
        inputs = processor(text=[text], images=opened, return_tensors="pt")
        completion = torch.tensor([generation.completion_token_ids])
        inputs["input_ids"] = torch.cat([inputs["input_ids"], completion], dim=1)
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        inputs["mm_token_type_ids"] = torch.cat([inputs["mm_token_type_ids"], torch.zeros_like(completion)], dim=1)
        with torch.no_grad():
            scores = reference(**inputs).logits[0, -completion.shape[1] - 1 : -1].log_softmax(-1)
        return scores.gather(1, completion[0][:, None])[:, 0].tolist()

    first, second, third = (page.image for page in found)
    assert generation.completion_logprobs == pytest.approx(compute_expected(generation, first, third), abs=0.02)
    assert generation.completion_logprobs != pytest.approx(compute_expected(generation, second, third), abs=0.02)
    assert again.completion_logprobs == pytest.approx(generation.completion_logprobs, abs=1e-3)


async def draw_as_served(engine: Any, settings: AppSettings, images_dir: Path, request: Request) -> tuple[Generation, str]:
    """The reply of an endpoint's engine to a request, and why a longer one is refused."""
    client = VllmClient(engine, settings.engine, ServedImageInputs(ImageStore(images_dir).open))
    generation = await client.draw(request)
    filling = {"type": "text", "text": " a" * 4000}  # without the images it would fit
    content = [filling, *request.messages[0]["content"]]
    with pytest.raises(PromptTooLongError) as refused:
        await client.draw(dataclasses.replace(request, messages=({"role": "user", "content": content},)))
    return generation, str(refused.value)


async def draw_from_shared(engine: SharedEngine, *asked: Any) -> tuple[Generation, str]:
    return await draw_as_served(engine._engine, *asked)


def draw_from_own(settings: AppSettings, images_dir: Path, request: Request, results: Connection) -> None:
    """With an engine as an endpoint starts it. In a process of its own."""
    from vllm.v1.engine.async_llm import AsyncLLM

    async def run() -> tuple[Generation, str]:
        return await draw_as_served(AsyncLLM.from_engine_args(build_serving_args(settings)), settings, images_dir, request)

    results.send(asyncio.run(run()))


@pytest.mark.parametrize("has_own", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_endpoint_shows_the_model_the_same_images_as_a_collection(vision_engine, collected, pages, model, has_own) -> None:
    _, (generation, _) = collected
    settings = build_app_settings(configure(model), AgentConfig(page_view="image"))
    asked = (settings, pages[0] / DIR_NAME, look_at(pages[1][0].image, pages[1][2].image))
    served, refusal = run_in_process(draw_from_own, *asked) if has_own else vision_engine.call(draw_from_shared, *asked)
    assert (served.completion_token_ids, served.finish_reason) == (generation.completion_token_ids, generation.finish_reason)
    assert served.completion_logprobs == pytest.approx(generation.completion_logprobs, abs=1e-3)
    assert "maximum model length" in refusal


async def search_and_collect(
    engine: SharedEngine, settings: AppSettings, index_dir: Path, url: str, collected_dir: Path
) -> list[Generation]:
    """The replies of an endpoint and of a collection to a question with an image, which each of them keeps itself."""
    searcher, images = Searcher(index_dir / "search_index"), EndpointImages(index_dir)
    client = VllmClient(engine._engine, settings.engine, ServedImageInputs(images.open))
    drawn: list[tuple[Request, Generation]] = []

    async def draw(request: Request, adapter: Any) -> Generation:
        drawn.append((request, await client.draw(request)))
        return drawn[-1][1]

    models = ServedModels({}, "base", "base", AgentRecord(agent=settings.agent))
    service = SearchService(searcher, Retrieval(searcher), models, draw, Limits(ServeConfig()), images=images)
    await service.search(SearchRequest(question="What is this?", images=[url]))
    engine.open_image = ImageStore(collected_dir).open
    [(request, generation)] = drawn
    return [generation, await engine(request)]


def test_a_model_sees_the_image_of_a_request_as_that_of_a_collected_question(vision_engine, collected, pages, model, tmp_path):
    folder, found = pages
    data = base64.b64encode((folder / DIR_NAME / found[0].image).read_bytes()).decode()
    url = f"data:image/jpeg;base64,{data}"
    [key] = QuestionImages(ImageStore(tmp_path), [], CorpusConfig().page_image_max_pixels).keep({"image": url})
    write_index(tmp_path / "index", found, [])
    settings = build_app_settings(configure(model), AgentConfig(max_tokens=4))
    served, expected = vision_engine.call(search_and_collect, settings, tmp_path / "index", url, tmp_path)
    assert (tmp_path / key).is_file()
    assert served.completion_token_ids == expected.completion_token_ids
    assert served.completion_logprobs == pytest.approx(expected.completion_logprobs, abs=1e-3)
    assert served.usage.num_prompt_tokens == expected.usage.num_prompt_tokens > 50


async def write_question(engine: SharedEngine, options: WorkerOptions, settings: QuestionsConfig, page: PageText) -> Draft:
    """Have the model write a question of a page, in the form that is asked for."""

    def build_engine(config: EngineConfig, images: ImageSource | None, adapters: Sequence[str]) -> SharedEngine:
        if images:
            engine.open_image = images.open
        return engine

    writer = QuestionWriter(settings, 0, dataclasses.replace(options, build_engine=build_engine), Recorder(), journal.keep_here)
    table = await writer(Chunk(0, (Order("q1", "fact", (page,)),)))
    return DRAFT.validate_json(table[DRAFT_COLUMN][0].as_py())


def test_a_question_is_written_from_the_picture_of_a_page(vision_engine: VisionEngine, pages, tmp_path: Path) -> None:
    write_index(tmp_path, pages[1], [])
    options = WorkerOptions(
        run_dir=tmp_path,
        index_dir=tmp_path / "search_index",
        agent=AgentConfig(page_view="image"),
        engine=configure(vision_engine.model),
        policies={"": Policy("tiny")},
        concurrent_rollouts=1,
        flush_s=0,
        image_dirs=(pages[0] / DIR_NAME,),
    )
    settings = QuestionsConfig(page_view="image", filters=(), max_tokens=40)
    replies: list[str] = []
    for number in (0, 0, 2):
        own = dataclasses.replace(options, run_dir=tmp_path / str(len(replies)))
        (own.run_dir / BEGUN_DIR_NAME).mkdir(parents=True)
        page = PageText(Evidence("wing.pdf", 1), "", pages[1][number].image)
        draft = vision_engine.call(write_question, own, settings, page)
        assert draft.reason == "unreadable"  # random weights come to no end, and so to no question
        replies.append(draft.detail)
    assert all(reply.startswith("{") for reply in replies)
    assert replies[0] == replies[1] != replies[2]


def test_images_processed_side_by_side_are_those_processed_one_by_one(model) -> None:
    from vllm.tokenizers.hf import maybe_make_thread_pool
    from vllm.transformers_utils.processor import cached_get_processor

    tokenizer = maybe_make_thread_pool(AutoTokenizer.from_pretrained(model), 2)
    engine = SimpleNamespace(
        model_config=build_engine_args(EngineConfig(model=model, max_model_len=4096)).create_model_config(),
        renderer=SimpleNamespace(mm_processor_cache=None),
        get_tokenizer=lambda: tokenizer,
    )
    pictures = {str(n): Image.new("RGB", (64 + 32 * (n % 5), 64 + 32 * (n % 3)), (n * 6, 255 - n * 6, 90)) for n in range(40)}
    inputs = ImageInputs(engine, ImageSource(pictures.__getitem__, 1), num_threads=1)
    loaded = cached_get_processor.cache_info().misses
    alone = [inputs.process(key) for key in pictures]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(inputs.process, pictures))
    assert [image.token_ids for image in together] == [image.token_ids for image in alone]
    for first, second in zip(alone, together, strict=True):
        assert torch.equal(first.features["pixel_values"].data, second.features["pixel_values"].data)
    assert cached_get_processor.cache_info().misses == loaded  # loading a processor takes seconds of Python


def test_what_vllm_compiles_for_images_and_for_text_is_kept_apart(model, tmp_path: Path) -> None:
    config = EngineConfig(model=model, load_format="dummy", max_model_len=1024)
    sources = (ImageSource(ImageStore(tmp_path).open, 3), None)
    engines = [build_engine_args(config, **build_image_options(config, source)).create_engine_config() for source in sources]
    assert len({engine.compute_hash() for engine in engines}) == 2
