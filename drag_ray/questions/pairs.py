"""Pairs of drafts of a question, one kept and one rejected: what the method dpo trains the writer on."""

import json
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

from drag_ray import schemas
from drag_ray.errors import DataError
from drag_ray.questions.config import JOURNAL_NAME, REJECTED_NAME, QuestionsConfig
from drag_ray.questions.drafts import DRAFT, OF_MANY, Draft, read_rows
from drag_ray.questions.prompts import write_prompt
from drag_ray.storage import artifacts
from drag_ray.storage.appended_lines import read_lines
from drag_ray.types import Evidence


def write_pairs(run_dir: Path, path: Path, worse: Collection[tuple[str, str]] = ()) -> int:
    """Write rows for `finetune.data`, and return their number: each the request for a question, as the writer got it, a draft
    that was kept, in whose style is asked, and one of the same pages and kind that a filter rejected.

    Args:
        run_dir: the run whose stage `questions` has finished.
        path: the file of JSON Lines.
        worse: kinds and styles from which rankers learn less, as ("kinds", kind) or ("styles", style): all drafts of these count
            as rejected, beside what was kept of other kinds or styles of the same pages.

    Raises:
        ArtifactError: the stage, or the index before it, has not finished.
        DataError: its questions or drafts are not there, were written from pictures, or make no pair.
    """
    artifacts.require_manifest(run_dir / "index", "python jobs/index.py")
    folder = run_dir / "questions"
    manifest = artifacts.require_manifest(folder, "python jobs/questions.py")
    settings = QuestionsConfig.model_validate(manifest.origin["config"]["questions"])
    if settings.page_view == "image":
        raise DataError(f"{folder}: the questions were written from pictures, and pairs are made of texts alone.")
    kept = read_rows(folder).keys()
    rejected = {draft.id for draft in read_lines(folder / REJECTED_NAME, DRAFT) if draft.question and draft.reason not in OF_MANY}
    judged = kept | rejected
    groups = defaultdict[tuple[Evidence, ...], list[Draft]](list)
    for draft in {draft.id: draft for draft in read_lines(folder / JOURNAL_NAME, DRAFT)}.values():  # the last of each
        groups[draft.places[: 1 + len(draft.links)]].append(draft)
    table = schemas.read_table(run_dir / "index" / "pages.parquet", schemas.PAGES, ["file", "page_number", "text"])
    texts = {Evidence(row["file"], row["page_number"]): row["text"] for row in table.to_pylist()}
    rows = list[dict[str, object]]()

    def is_worse(draft: Draft) -> bool:
        return ("kinds", draft.kind) in worse or ("styles", draft.style) in worse

    for places, drafts in groups.items():
        if not texts.keys() >= set(places):  # of an index that is another one by now
            continue
        for kind in dict.fromkeys(draft.kind for draft in drafts):
            own = [draft for draft in drafts if draft.kind == kind and draft.id in judged]
            other = [draft for draft in own if draft.id in rejected or is_worse(draft)]
            source = drafts if ("kinds", kind) in worse else own
            chosen = [draft for draft in source if draft.id in kept and not is_worse(draft)]
            shown = [texts[place][: settings.page_chars] for place in places]
            for good, bad in zip(chosen, other, strict=False):
                prompt = write_prompt(bad.kind, shown, bad.links, settings.examples, good.style)
                rows.append({"prompt": prompt, "chosen": _write(good), "rejected": _write(bad), "category": f"written_{kind}"})
    if not rows:
        raise DataError(
            f"{folder}: no page with a draft that was kept and one of the same kind that was rejected. Raise questions.samples."
        )
    artifacts.write_jsonl(path, rows)
    return len(rows)


def _write(draft: Draft) -> str:
    """The reply of the writer, before anything was rewritten."""
    first = next((done.question for done in draft.rewritings if not done.refused), draft.question)
    return json.dumps({"question": first, "answer": draft.answer}, ensure_ascii=False)
