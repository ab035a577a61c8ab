"""One engine with its index, which writes the questions of a chunk and answers them again. It knows nothing of Ray."""

import asyncio
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import pyarrow as pa

from drag_ray.agent.answers import RIGHT_ANLS, compute_anls
from drag_ray.agent.shown_images import Content, image_part
from drag_ray.agent.task import compute_seed
from drag_ray.cluster.metrics import Recorder
from drag_ray.corpus.near_duplicates import list_words
from drag_ray.corpus.questions import hash_text
from drag_ray.engine.generate import Message, Request
from drag_ray.engine.sampling import PRESETS
from drag_ray.errors import BudgetError, PromptTooLongError, RolloutError
from drag_ray.questions.config import FilterName, QuestionsConfig, RewritingName
from drag_ray.questions.drafts import DRAFT, Draft, Reason, Rewriting, copies_run, refers_to_page
from drag_ray.questions.languages import UNKNOWN, tell_language
from drag_ray.questions.links import Order
from drag_ray.questions.pages import PageText
from drag_ray.questions.prompts import REPLY_FORM, read_answer, read_written, write_answer_prompt, write_prompt
from drag_ray.questions.rewriting import (
    REWRITING_FORM,
    caption_image,
    has_words,
    is_replaced,
    read_rewritten,
    write_rewriting_prompt,
)
from drag_ray.rollout.failures import ENGINE_DIED
from drag_ray.rollout.journal import Keep, begin_chunk
from drag_ray.rollout.options import WorkerOptions, locate_index, start_engine
from drag_ray.search.searcher import Searcher
from drag_ray.types import Evidence

_MAX_DETAIL_CHARS = 500
_NUM_SEARCHED = 10
"""pages of a search that may answer a question too"""
_MAX_OTHER_PAGES = 3
"""Pages that may answer a question of one page too; more make it ambiguous."""
DRAFT_COLUMN = "draft"
"""of a worker's table, with a draft as JSON in each row"""

_FILTERS_OF_REWRITINGS: tuple[FilterName, ...] = ("answerable", "closed_book", "other_pages")
"""Switched on for what is rewritten."""


class _Check(NamedTuple):
    """Pages that a draft is answered from, and the reason that leaves it out unless the answer is right, or wrong."""

    reason: Reason
    pages: Sequence[Content]
    is_right: bool = False


class Chunk(NamedTuple):
    """Some orders, and the number of the chunk in this attempt."""

    number: int
    orders: tuple[Order, ...]


class QuestionWriter:
    """Writes chunks of questions, many at once."""

    def __init__(self, settings: QuestionsConfig, seed: int, options: WorkerOptions, recorder: Recorder, keep: Keep) -> None:
        self._settings = settings
        self._seed = seed
        self._options = options
        self._recorder = recorder
        self._keep = keep
        self._name = uuid.uuid4().hex
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
        """Have the question written, look at it and rewrite it; nothing more is asked about one that is left out."""
        settings, draft = self._settings, _begin_draft(order)
        styles = sorted(settings.styles, key=lambda style: hash_text(f"{order.id} {style}", self._seed))
        draft = replace(draft, style=styles[0] if styles else "")
        shown = [self._show(page, chars) for page in order.pages]
        prompt = write_prompt(order.kind, shown, order.links, settings.examples, draft.style)
        draft, reply = await self._ask(draft, prompt, settings.preset, REPLY_FORM)
        written = read_written(reply)
        if written is None:
            return replace(draft, reason="unreadable", detail=reply[:_MAX_DETAIL_CHARS])
        draft = replace(draft, question=written.question, answer=written.answer)
        max_others = _MAX_OTHER_PAGES if len(shown) == 1 else None
        draft = await self._judge(draft, order, chars, settings.filters, max_others)
        if settings.anchor_images and len(order.pages) > 1 and order.pages[0].image and not draft.reason:
            draft = await self._rewrite("anchored", draft, order, chars)
        if settings.fuzzy and not draft.reason:
            draft = await self._rewrite("fuzzy", draft, order, chars)
        if "one_search" in settings.filters and not draft.reason:
            found = await asyncio.to_thread(self._find_first, draft)
            given = self._show_all(draft, order, chars)[1]
            draft = await self._check(draft, _Check("one_search", [*given, *(self._show(page, chars) for page in found)]))
        return draft

    async def _judge(
        self, draft: Draft, order: Order, chars: int, filters: Collection[FilterName], max_others: int | None
    ) -> Draft:
        """The draft with the reason of the first filter that leaves it out, if one does; those that ask no model come first. For
        None in place of `max_others`, the number of other pages that may answer it, these are not looked for."""
        settings, texts = self._settings, [page.text for page in order.pages]
        if "self_reference" in filters and refers_to_page(draft.question):
            return replace(draft, reason="self_reference")
        if "language" in filters and await asyncio.to_thread(self._is_foreign, draft, texts):
            return replace(draft, reason="other_language")
        if "copied" in filters and any(copies_run(draft.question, text) for text in texts):
            return replace(draft, reason="copied")
        if "rank" in filters:
            draft = replace(draft, rank=await asyncio.to_thread(self._find_rank, draft))
            if draft.rank < settings.min_rank:
                return replace(draft, reason="too_easy" if draft.rank else "not_found")
        shown, given = self._show_all(draft, order, chars)
        checks: list[_Check] = []
        if "answerable" in filters:
            checks.append(_Check("unanswerable", shown, is_right=True))
        if "needs_all" in filters and len(shown) > 1:
            checks += [_Check("one_page", part) for part in combinations(shown, len(shown) - 1)]
        if "closed_book" in filters:
            checks.append(_Check("known", given))
        for check in checks:
            draft = await self._check(draft, check)
            if draft.reason:
                return draft
        if "other_pages" in filters and max_others is not None:
            draft = await self._look_elsewhere(draft, given, chars, max_others)
        return draft

    async def _check(self, draft: Draft, check: _Check) -> Draft:
        draft, reply = await self._ask(draft, write_answer_prompt(draft.question, check.pages))
        is_right = _agrees(reply, draft.answer) == check.is_right
        return draft if is_right else replace(draft, reason=check.reason, detail=reply[:_MAX_DETAIL_CHARS])

    async def _look_elsewhere(self, draft: Draft, given: Sequence[Content], chars: int, max_others: int) -> Draft:
        """The draft with the other pages that answer it as well; left out where they are too many to be told from it."""
        known = len(draft.other_pages)
        for page in await asyncio.to_thread(self._find_others, draft, chars):
            draft, reply = await self._ask(draft, write_answer_prompt(draft.question, [*given, self._show(page, chars)]))
            if _agrees(reply, draft.answer):
                draft = replace(draft, other_pages=(*draft.other_pages, page.place))
            if len(draft.other_pages) - known > max_others:
                return replace(draft, reason="ambiguous")
        return draft

    async def _rewrite(self, kind: RewritingName, draft: Draft, order: Order, chars: int) -> Draft:
        """The draft in other words if it passes the filters so, those among them by which its answer stays the same and no more
        pages give it; otherwise as it is."""
        image = order.pages[0].image if kind == "anchored" else draft.image
        if kind == "anchored" and has_words(order.pages[0], draft.answer):
            return _note_rewriting(draft, draft, Rewriting(kind, refused="answer_on_image"))
        shown, _ = self._show_all(draft, order, chars)
        prompt = write_rewriting_prompt(kind, draft.question, shown)
        asked, reply = await self._ask(draft, prompt, form=REWRITING_FORM)
        rewritten = read_rewritten(reply)
        if rewritten is None:
            return _note_rewriting(draft, asked, Rewriting(kind, refused="unreadable"))
        if not is_replaced(kind, draft.question, rewritten, order.pages[0] if image else None):
            return _note_rewriting(draft, asked, Rewriting(kind, *rewritten, refused="not_replaced"))
        filters = (*self._settings.filters, *_FILTERS_OF_REWRITINGS)
        judged = await self._judge(replace(asked, question=rewritten.question, image=image), order, chars, filters, 0)
        if judged.reason:
            return _note_rewriting(draft, judged, Rewriting(kind, *rewritten, refused=judged.reason))
        return _note_rewriting(judged, judged, Rewriting(kind, rewritten.name, draft.question))

    def _show_all(self, draft: Draft, order: Order, chars: int) -> tuple[list[Content], list[Content]]:
        """The contents shown of all pages, and of the one that comes with the question, if its picture does."""
        first, *rest = (self._show(page, chars) for page in order.pages)
        return ([pictured := caption_image(first), *rest], [pictured]) if draft.image else ([first, *rest], [])

    def _show(self, page: PageText, chars: int) -> Content:
        """The text or the picture of a page, as the model is shown it; the text of one that has no picture."""
        return [image_part(page.image)] if self._settings.page_view == "image" and page.image else page.text[:chars]

    def _is_foreign(self, draft: Draft, texts: Sequence[str]) -> bool:
        """True if the language of a question is known, and none to ask in: that of the options, or one that a page may have."""
        wanted = {self._settings.language} - {UNKNOWN} or set(map(tell_language, texts))
        return tell_language(draft.question) not in {UNKNOWN, *wanted} and UNKNOWN not in wanted

    def _find_others(self, draft: Draft, chars: int) -> list[PageText]:
        """Other pages that are found with the question, or with its answer beside it, and hold all words of the answer."""
        texts = (draft.question, f"{draft.question} {draft.answer}")
        hits = [hit for text in texts for hit in self._searcher.search(text, _NUM_SEARCHED)]
        found = self._read(dict.fromkeys(hit.page for hit in hits if hit.page not in draft.places))
        words = set(list_words(draft.answer))
        return [page for page in found if words <= set(list_words(page.text[:chars]))]

    def _find_first(self, draft: Draft) -> list[PageText]:
        """The first page that is found with the question; none where nothing is."""
        return self._read(hit.page for hit in self._searcher.search(draft.question, 1))

    def _read(self, places: Iterable[Evidence]) -> list[PageText]:
        pages = ((place, self._searcher.page(place)) for place in places)
        return [PageText(place, page.text, page.image) for place, page in pages]

    def _find_rank(self, draft: Draft) -> int:
        """The rank of the first page of its evidence, searched with the question; 0 where none is among the first `max_rank`."""
        places = draft.to_question().evidence
        hits = self._searcher.search(draft.question, self._settings.max_rank)
        return next((hit.rank for hit in hits if hit.page in places), 0)

    async def _ask(self, draft: Draft, messages: list[Message], preset: str = "greedy", form: str = "") -> tuple[Draft, str]:
        """The draft with the tokens of a further request, and the reply, drawn in a form where the engine can do that."""
        form = form if self._options.engine.backend == "vllm" else ""
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
        asked = replace(draft, calls=draft.calls + 1, prompt_tokens=read, completion_tokens=written)
        return asked, reply.text if form else reply.full_text

    def _note_load(self, **changes: int) -> None:
        self._load.update(changes)
        self._recorder.set_load(self._load["running"], self._load["waiting"])


def _begin_draft(order: Order) -> Draft:
    place, *others = (page.place for page in order.pages)
    return Draft(order.id, order.kind, place.file, place.page_number, other_pages=tuple(others), links=order.links)


def _note_rewriting(draft: Draft, spent: Draft, rewriting: Rewriting) -> Draft:
    """The draft with a rewriting, and the requests and tokens that it came to."""
    costs = {name: getattr(spent, name) for name in ("calls", "prompt_tokens", "completion_tokens")}
    return replace(draft, rewritings=(*draft.rewritings, rewriting), **costs)


def _agrees(reply: str, answer: str) -> bool:
    return compute_anls(read_answer(reply), [answer]) >= RIGHT_ANLS
