"""The questions stage: a model writes questions from pages of the index, and filters leave out what is not worth asking."""

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, get_args

import numpy as np
import pyarrow as pa

from drag_ray import schemas
from drag_ray.agent.config import AgentConfig
from drag_ray.cluster.metrics import show_progress
from drag_ray.corpus import image_store, question_images
from drag_ray.corpus.image_store import ImageStore
from drag_ray.corpus.links import read_links
from drag_ray.corpus.near_duplicates import find_near_duplicates, write_near_duplicates
from drag_ray.corpus.questions import QUESTIONS_NAME
from drag_ray.errors import BudgetError, ConfigError, DataError
from drag_ray.questions.config import JOURNAL_NAME, PAGES_NAME, REJECTED_NAME, ROWS_NAME, WALKS, QuestionsSections
from drag_ray.questions.coverage import draw_pages, group_pages, spread_pages
from drag_ray.questions.drafts import (
    DRAFT,
    NOT_WRITTEN,
    Draft,
    Embed,
    build_rows,
    count_drafts,
    drop_repeated,
    mix_difficulty,
    split_drafts,
)
from drag_ray.questions.languages import list_languages
from drag_ray.questions.links import Order, plan_orders
from drag_ray.questions.pages import PageText, Unfit, find_unfit
from drag_ray.questions.writer import DRAFT_COLUMN, Chunk, QuestionWriter
from drag_ray.rollout import journal
from drag_ray.rollout.failures import check_failure_rate
from drag_ray.rollout.folder import BEGUN_DIR_NAME
from drag_ray.rollout.options import WorkerOptions, build_options
from drag_ray.rollout.runner import count_cost, stream_chunks
from drag_ray.stage_runs.folder import StageFolder
from drag_ray.stage_runs.inputs import Inputs
from drag_ray.storage import artifacts
from drag_ray.storage.appended_lines import append_line, read_lines
from drag_ray.storage.file_access import writing
from drag_ray.types import Evidence

_logger = logging.getLogger(__name__)

_JUDGED_FROM = 20
"""drafts, from which on their share of failures is looked at"""


def run(sections: QuestionsSections, inputs: Inputs, folder: StageFolder) -> dict[str, Any]:
    """Write `questions.jsonl`, which corpus.questions reads; the same as the index stage writes it (`questions.parquet` and
    `near_duplicates.parquet`), with `question_images/` where it asks about pictures; and, with reasons, `rejected.jsonl` and
    `left_out_pages.jsonl`. Going on after a kill does nothing twice.

    Returns:
        Counts: pages, those left out for each reason, pages, files and topics asked about, topics, those of `count_drafts`,
        train, test, and the cost of an endpoint whose prices are known, in sum and a question.

    Raises:
        ConfigError: questions are to be asked about pictures, and no page where one starts has any; their language cannot be
            told; or the embedding model cannot be loaded.
        DataError: no page can be asked about, or no question is left.
        BudgetError: what an endpoint's replies may cost is spent; what was written is kept.
        TooManyFailuresError: more requests failed than `rollout.max_failure_rate` allows.
        EngineDiedError: the engines do not start.
    """
    index_dir = inputs["index"]
    if schemas.read_table(index_dir / QUESTIONS_NAME, schemas.QUESTIONS, ["id"]).num_rows:
        _logger.warning(
            "questions: the index has questions (corpus.questions), which the other stages ask. What is written here is a file "
            "that can be joined with those."
        )
    pages = schemas.read_table(index_dir / "pages.parquet", schemas.PAGES, ["file", "page_number", "text", "image"])
    writer = sections.writer.model_copy(update={"logprobs": False})
    num_pages = max(WALKS.get(kind, (1, False))[0] for kind in sections.questions.kinds)
    shown = AgentConfig(page_view=sections.questions.page_view, max_iterations=2, top_k=num_pages)  # images of a prompt
    options = build_options(shown, writer, sections.rollout, index_dir, folder.path)
    options = replace(options, stored=inputs.list_stored())
    orders, counts = _plan(pages, read_links(index_dir), sections, folder)
    embed = _load_embedder(sections)
    drafts = drop_repeated(_write_drafts(orders, sections, options), sections.questions, embed)
    drafts = mix_difficulty(drafts, sections.questions, sections.seed)
    counts |= (of_drafts := count_drafts(drafts))
    artifacts.write_jsonl(folder.path / REJECTED_NAME, [asdict(draft) for draft in drafts if draft.reason])
    kept = {draft.id: draft for draft in drafts if not draft.reason}
    if not kept:
        raise DataError(
            f"none of {len(drafts)} written questions is left ({_list_counts(of_drafts)}); see {folder.path / REJECTED_NAME}. "
            "A larger model writes better ones (questions.writer), and questions.filters names what leaves them out."
        )
    near_duplicates = find_near_duplicates(pages, dict.fromkeys(page for draft in kept.values() for page in draft.places))
    questions = split_drafts(list(kept.values()), near_duplicates, sections.corpus)
    artifacts.write_jsonl(folder.path / ROWS_NAME, build_rows(questions, kept))
    store = ImageStore(index_dir / image_store.DIR_NAME)
    for key in {key for question in questions for key in question.images}:
        artifacts.write_bytes(folder.path / question_images.DIR_NAME / key, store.read(key))
    artifacts.write_parquet(folder.path / QUESTIONS_NAME, schemas.to_table(questions, schemas.QUESTIONS))
    write_near_duplicates(folder.path, near_duplicates)
    splits = Counter(question.split for question in questions)
    costs = count_cost(options)
    each = {f"{name}_per_question": cost / len(questions) for name, cost in costs.items() if questions}
    return {**counts, "train": splits["train"], "test": splits["test"], **costs, **each}


def _plan(
    table: pa.Table, links: Mapping[Evidence, tuple[str, ...]], sections: QuestionsSections, folder: StageFolder
) -> tuple[list[Order], dict[str, Any]]:
    """The questions to write, and the counts of pages; writes down which of these are left out."""
    settings = sections.questions
    rows = zip(*(table[name].to_pylist() for name in ("file", "page_number", "text", "image")), strict=True)
    places = ((Evidence(file, page_number), text, image) for file, page_number, text, image in rows)
    pages = [PageText(place, text, image, links.get(place, ())) for place, text, image in places]
    if settings.language and settings.language not in (known := list_languages()):
        raise ConfigError(f"questions.language {settings.language!r} is none that can be told: {', '.join(sorted(known))}.")
    unfit = find_unfit(pages, settings.min_words, settings.page_view == "image", settings.language)
    artifacts.write_jsonl(folder.path / PAGES_NAME, [asdict(place) | {"reason": reason} for place, reason in unfit.items()])
    fit = draw_pages((page for page in pages if page.place not in unfit), sections.seed)
    topics = group_pages(fit, settings.topics, sections.seed)
    others = [page for page in pages if page.place in unfit]
    orders = plan_orders(spread_pages(fit, topics), settings.kinds, settings.limit, others, settings.samples)
    reasons = Counter(unfit.values())
    counts = {"pages": len(pages), **{f"left_out_{reason}": reasons[reason] for reason in get_args(Unfit)}}
    if not orders:
        raise DataError(
            f"none of {len(pages)} pages can be asked about ({_list_counts(counts)}); see questions.min_words, questions.kinds "
            f"and {folder.path / PAGES_NAME}."
        )
    if settings.anchor_images and not any(len(order.pages) > 1 and order.pages[0].image for order in orders):
        raise ConfigError(
            "questions.anchor_images: no question is over several pages of which the first has a picture. Build the index with "
            "--corpus.page-images, and name documents among questions.kinds."
        )
    asked = {order.pages[0].place for order in orders}
    of_asked = {"files_asked": len({place.file for place in asked}), "topics_asked": len({topics[place] for place in asked})}
    return orders, counts | {"pages_asked": len(asked), **of_asked, "topics": len(set(topics.values()))}


def _load_embedder(sections: QuestionsSections) -> Embed | None:
    """The function for vectors of questions; loaded before anything is written, so that a model that is none costs nothing."""
    if not sections.compares_meaning:
        return None
    from drag_ray.engine.encoders.embedding import Embedder  # PyTorch takes seconds to import

    embedder = Embedder(sections.embedding)

    def embed(texts: list[str]) -> np.ndarray:
        vectors = embedder.embed_queries(texts)
        return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)

    return embed


def _list_counts(counts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in counts.items() if name.startswith("left_out_") and value)


def _write_drafts(orders: Sequence[Order], sections: QuestionsSections, options: WorkerOptions) -> list[Draft]:
    """The drafts of all orders, in their order; those that the journal of the stage has are not written again."""
    path = options.run_dir / JOURNAL_NAME
    known = {draft.id: draft for draft in read_lines(path, DRAFT) if draft.reason not in NOT_WRITTEN}
    pending = [order for order in orders if order.id not in known]
    if known:
        _logger.info(f"questions: {len(orders) - len(pending)} of {len(orders)} are written already")
    settings, spent, errors = sections.rollout, "", Counter[str]()
    num_known = len(orders) - len(pending)
    with show_progress(options.run_dir, "writing", "questions", "questions", len(orders), num_known) as advance:
        for number, draft in enumerate(_stream_drafts(pending, sections, options), start=1):
            if draft.reason == "budget":
                spent = draft.detail
                continue
            append_line(path, asdict(draft))
            known[draft.id] = draft
            advance(1)
            if draft.reason == "failed":
                errors[draft.detail] += 1
            if number >= _JUDGED_FROM:
                check_failure_rate(errors.total(), number, settings.max_failure_rate, errors)
    if spent:
        raise BudgetError(spent)
    check_failure_rate(errors.total(), len(orders), settings.max_failure_rate, errors)
    return [known[order.id] for order in orders]


def _stream_drafts(orders: Sequence[Order], sections: QuestionsSections, options: WorkerOptions) -> Iterator[Draft]:
    """Drafts as they come, with the seconds that have gone by since the one before."""
    if not orders:
        return
    with writing(options.run_dir):
        (options.run_dir / BEGUN_DIR_NAME).mkdir(exist_ok=True)
    journal.forget_begun(options.run_dir)
    size = sections.rollout.chunk_size
    chunks = [Chunk(start, tuple(orders[start : start + size])) for start in range(0, len(orders), size)]
    build_worker = partial(QuestionWriter, sections.questions, sections.seed)
    before = time.monotonic()
    for row in stream_chunks(chunks, size, options, sections.rollout, build_worker):
        draft = DRAFT.validate_json(row[DRAFT_COLUMN])
        before, seconds = time.monotonic(), time.monotonic() - before
        yield replace(draft, seconds=seconds)
