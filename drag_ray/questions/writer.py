"""One engine with its index, which writes the questions of a chunk and answers them again. It knows nothing of Ray."""

import asyncio
import uuid
from collections import Counter
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from drag_ray.agent.answers import RIGHT_ANLS, compute_anls
from drag_ray.agent.shown_images import Content, image_part
from drag_ray.agent.task import compute_seed
from drag_ray.cluster.metrics import Recorder
from drag_ray.corpus.near_duplicates import list_words
from drag_ray.engine.generate import Message, Request
from drag_ray.engine.reasoning import THINK
from drag_ray.engine.sampling import PRESETS
from drag_ray.errors import BudgetError, PromptTooLongError, RolloutError
from drag_ray.questions.config import QuestionsConfig
from drag_ray.questions.drafts import DRAFT, Draft
from drag_ray.questions.filters import copies_run, refers_to_page
from drag_ray.questions.orders import Order
from drag_ray.questions.pages import PageText
from drag_ray.questions.prompts import REPLY_FORM, read_answer, read_written, write_answer_prompt, write_prompt
from drag_ray.rollout.failures import ENGINE_DIED
from drag_ray.rollout.journal import Keep, begin_chunk
from drag_ray.rollout.options import WorkerOptions, locate_index, start_engine
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence

_MAX_DETAIL_CHARS = 500
_NUM_SEARCHED = 10
"""pages of a search that may answer a question too"""
DRAFT_COLUMN = "draft"
"""of a worker's table, with a draft as JSON in each row"""


class Chunk(NamedTuple):
    """Some orders, and the number of the chunk in this attempt."""

    number: int
    orders: tuple[Order, ...]


class QuestionWriter:
    """Writes chunks of questions, many at once.

    Args:
        settings: of the stage.
        seed: of the run.
        options: to run with.
        recorder: is told of the load.
        keep: calls functions where the folder of the stage is seen.
    """

    def __init__(self, settings: QuestionsConfig, seed: int, options: WorkerOptions, recorder: Recorder, keep: Keep) -> None:
        self._settings = settings
        self._seed = seed
        self._options = options
        self._recorder = recorder
        self._keep = keep
        self._name = uuid.uuid4().hex
        self._form = REPLY_FORM if options.engine.backend == "vllm" else ""
        self._generate = start_engine(options)
        self._searcher = Searcher(locate_index(options))
        self._slots = asyncio.Semaphore(options.concurrent_rollouts)
        self._load = Counter[str]()

    async def __call__(self, chunk: Chunk) -> pa.Table:
        """The drafts of a chunk. One whose engines have died as often as a rollout is tried has failed, for now."""
        begun = (begin_chunk, self._options.run_dir, chunk.number, self._name)
        earlier = await asyncio.to_thread(self._keep, *begun)
        if len(earlier) >= self._options.max_tries:
            drafts = [replace(_begin_draft(order), reason="failed", detail=ENGINE_DIED) for order in chunk.orders]
        else:
            drafts = await asyncio.gather(*map(self._draft, chunk.orders))
        return pa.table({DRAFT_COLUMN: [DRAFT.dump_json(draft).decode() for draft in drafts]})

    async def _draft(self, order: Order) -> Draft:
        """The draft of an order, in one of the engine's slots."""
        self._note_load(waiting=1)
        async with self._slots:
            self._note_load(waiting=-1, running=1)
            try:
                return await self._try(order)
            finally:
                self._note_load(running=-1)

    async def _try(self, order: Order) -> Draft:
        """The draft, by another try where one fails, with half as much of each page where the model cannot take so much."""
        error, chars = "", self._settings.page_chars
        for _ in range(self._options.max_tries):
            try:
                return await self._write(order, chars)
            except BudgetError as caught:
                return replace(_begin_draft(order), reason="budget", detail=str(caught))
            except RolloutError as caught:
                chars = chars // 2 if isinstance(caught, PromptTooLongError) else chars
                error = f"{type(caught).__name__}: {caught}"
        return replace(_begin_draft(order), reason="failed", detail=error[:_MAX_DETAIL_CHARS])

    async def _write(self, order: Order, chars: int) -> Draft:
        """Have the question written and look at it; nothing more is asked about one that is left out."""
        settings, draft = self._settings, _begin_draft(order)
        shown = [self._show(page, chars) for page in order.pages]
        prompt = write_prompt(order.kind, shown, order.link, settings.examples)
        draft, reply = await self._ask(draft, prompt, settings.preset, self._form)
        written = read_written(reply)
        if written is None:
            return replace(draft, reason="unreadable", detail=reply[:_MAX_DETAIL_CHARS])
        draft = replace(draft, question=written.question, answer=written.answer)
        if "self_reference" in settings.filters and refers_to_page(written.question):
            return replace(draft, reason="self_reference")
        texts = [page.text for page in order.pages]
        if "copied" in settings.filters and any(copies_run(written.question, text, settings.copied_words) for text in texts):
            return replace(draft, reason="copied")
        if "rank" in settings.filters:
            draft = replace(draft, rank=await asyncio.to_thread(self._find_rank, order, written.question))
            if draft.rank < settings.min_rank:
                return replace(draft, reason="too_easy" if draft.rank else "not_found")
        if "answerable" in settings.filters:
            draft, reply = await self._ask(draft, write_answer_prompt(written.question, shown))
            if not _agrees(reply, written.answer):
                return replace(draft, reason="unanswerable", detail=reply[:_MAX_DETAIL_CHARS])
        if "needs_all" in settings.filters and len(shown) > 1:
            for page in shown:
                draft, reply = await self._ask(draft, write_answer_prompt(written.question, [page]))
                if _agrees(reply, written.answer):
                    return replace(draft, reason="one_page", detail=reply[:_MAX_DETAIL_CHARS])
        if "closed_book" in settings.filters:
            draft, reply = await self._ask(draft, write_answer_prompt(written.question))
            if _agrees(reply, written.answer):
                return replace(draft, reason="known", detail=reply[:_MAX_DETAIL_CHARS])
        may_be_elsewhere = "other_pages" in settings.filters and len(shown) == 1
        return await self._look_elsewhere(draft, chars) if may_be_elsewhere else draft

    async def _look_elsewhere(self, draft: Draft, chars: int) -> Draft:
        """The draft with the other pages that answer it as well; left out where they are too many to be told from it."""
        for page in await asyncio.to_thread(self._find_others, draft, chars):
            draft, reply = await self._ask(draft, write_answer_prompt(draft.question, [self._show(page, chars)]))
            if _agrees(reply, draft.answer):
                draft = replace(draft, other_pages=(*draft.other_pages, page.place))
            if len(draft.other_pages) > self._settings.max_other_pages:
                return replace(draft, reason="ambiguous")
        return draft

    def _show(self, page: PageText, chars: int) -> Content:
        """The text or the picture of a page, as the model is shown it."""
        return [image_part(page.image)] if self._settings.page_view == "image" else page.text[:chars]

    def _find_others(self, draft: Draft, chars: int) -> list[PageText]:
        """Other pages that are found with the question, or with its answer beside it, and hold all words of the answer."""
        texts = (draft.question, f"{draft.question} {draft.answer}")
        hits = [hit for text in texts for hit in self._searcher.search(text, _NUM_SEARCHED)]
        pages = dict.fromkeys(Evidence(hit.file, hit.page_number) for hit in hits)
        pages.pop(Evidence(draft.file, draft.page_number), None)
        words, found = set(list_words(draft.answer)), [(place, self._searcher.page(place)) for place in pages]
        others = [PageText(place, page.text, page.image) for place, page in found]
        return [page for page in others if words <= set(list_words(page.text[:chars]))]

    async def _ask(self, draft: Draft, messages: list[Message], preset: str = "greedy", form: str = "") -> tuple[Draft, str]:
        """The draft with the tokens of a further request, and the reply."""
        reply = await self._generate(
            Request(
                messages=tuple(messages),
                sampling=PRESETS[preset],
                max_tokens=self._settings.max_tokens,
                seed=compute_seed(self._seed, draft.id),
                form=form,
                adapter=self._options.engine.adapter,
            )
        )
        read, written = (
            draft.prompt_tokens + reply.usage.num_prompt_tokens,
            draft.completion_tokens + reply.usage.num_completion_tokens,
        )
        text = THINK + reply.text if reply.in_reasoning and not form else reply.text
        return replace(draft, prompt_tokens=read, completion_tokens=written), text

    def _find_rank(self, order: Order, question: str) -> int:
        """The rank of the first page of the order, searched with the question; 0 where none is among the first `max_rank`."""
        hits = self._searcher.search(question, self._settings.max_rank)
        places = {page.place for page in order.pages}
        return next((hit.rank for hit in hits if Evidence(hit.file, hit.page_number) in places), 0)

    def _note_load(self, **changes: int) -> None:
        self._load.update(changes)
        self._recorder.set_load(self._load["running"], self._load["waiting"])


def _begin_draft(order: Order) -> Draft:
    place, *others = (page.place for page in order.pages)
    return Draft(order.id, order.kind, place.file, place.page_number, other_pages=tuple(others), link=order.link)


def _agrees(reply: str, answer: str) -> bool:
    return compute_anls(read_answer(reply), [answer]) >= RIGHT_ANLS
