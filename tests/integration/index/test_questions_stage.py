"""Questions from documents alone: a scripted endpoint writes them, and each filter leaves out its own."""

import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chat_server import Answer, ChatServer, serve_chat
from embedding_models import write_embedding_model
from PIL import Image
from small_index import finish_index

from drag_ray.api.run import open_run
from drag_ray.config import build, override
from drag_ray.corpus.image_store import ImageStore, encode
from drag_ray.corpus.question_images import QuestionImages, decode_data_url
from drag_ray.corpus.questions import read_questions, read_run_questions
from drag_ray.errors import BudgetError, ConfigError, DataError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import list_pipeline, run_stages
from drag_ray.pipeline.stages import STAGES
from drag_ray.types import Evidence, Page, Question

PARTS = ("rotor", "spar", "valve", "pump", "flap", "wheel", "wing", "brake")
KEPT = {"wing", "brake"}
TEXT = "The {part} of the plane is looked at by a mechanic, who turns it {number} times and writes down what was seen, each week."


def write(part: str) -> str:
    """The model's draft from the page of a part."""
    question, answer = f"How many turns does the mechanic give the {part}?", "many times"
    match part:
        case "rotor":
            return f"Sure! Here it is: {question}"
        case "spar":
            question = f"What does this page say of the {part}?"
        case "valve":
            question = f"Is it true that the {part} of the plane is looked at by a mechanic, who turns it?"
        case "pump":
            question = "Zzz?"
        case "wheel":
            answer = "known to everyone"
        case "brake":
            answer = "as often as it squeaks"
    return json.dumps({"question": question, "answer": answer})


def answer(body: dict[str, Any], number: int) -> Answer:
    prompt = body["messages"][-1]["content"]
    part = next(part for part in PARTS if re.search(rf"\b{part}\b", prompt))
    if "Reply with nothing but one JSON object" in body["messages"][0]["content"]:
        return Answer(write(part))
    if body["messages"][0]["role"] == "system":
        return Answer(f"<search>{part}</search>")
    if "<page>" in prompt:
        return Answer("something else" if part == "flap" else json.loads(write(part))["answer"])
    return Answer("known to everyone" if part == "wheel" else "unknown")


@pytest.fixture(scope="module")
def served() -> Iterator[ChatServer]:
    with serve_chat(answer) as served:
        yield served


def configure(run_dir: Path, served: ChatServer, **options: Any) -> RunConfig:
    terms = {"address": served.address, "prompt_price": 1000, "completion_price": 1000, "budget": options.pop("budget", 0.0)}
    engine = {"backend": "openai", "model": "scripted", "endpoint": terms}
    corpus = {"documents": "none", "questions": "", "test_fraction": options.pop("test_fraction", 0.5)}
    rollout = {"concurrent_rollouts": 1, "chunk_rollouts": 1}
    settings = {"questions": {"limit": 0, "min_words": 5, **options}}
    return build(RunConfig, {"run_dir": run_dir, "engine": engine, "corpus": corpus, "rollout": rollout, **settings})


def finish_pages(run_dir: Path, questions: tuple[Question, ...] = ()) -> None:
    pages = [Page(f"{part}.pdf", 1, 1, TEXT.format(part=part, number=number)) for number, part in enumerate(PARTS, start=1)]
    finish_index(run_dir, [*pages, Page("empty.pdf", 1, 1, "")], list(questions))


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_each_filter_leaves_out_its_own_and_the_rest_is_read_as_the_questions_of_a_run(
    local_ray: None, served: ChatServer, tmp_path: Path
) -> None:
    finish_pages(tmp_path)
    counts = run_stages([STAGES["questions"]], configure(tmp_path, served))["questions"].counts
    names = ("unreadable", "self_reference", "copied", "not_found", "unanswerable", "known")
    assert {name: counts[f"left_out_{name}"] for name in names} == dict.fromkeys(names, 1)
    assert (counts["pages"], counts["left_out_empty"], counts["drafts"], counts["questions"]) == (9, 1, 8, 2)
    assert (counts["train"], counts["test"]) == (1, 1)
    assert (counts["pages_asked"], counts["files_asked"], counts["topics_asked"], counts["topics"]) == (8, 8, 1, 1)
    rejected = {row["file"]: row["reason"] for row in read(tmp_path / "questions" / "rejected.jsonl")}
    assert rejected == dict(zip((f"{part}.pdf" for part in PARTS), names, strict=False))
    questions, problems = read_questions(tmp_path / "questions" / "questions.jsonl")
    assert problems == []
    assert {question.evidence for question in questions} == {(Evidence(f"{part}.pdf", 1),) for part in KEPT}
    assert {question.split for question in questions} == {"train", "test"}


def test_a_spent_budget_is_gone_on_with_and_no_question_is_written_twice(
    local_ray: None, served: ChatServer, tmp_path: Path
) -> None:
    """With 110 tokens a reply costs 0.11."""
    finish_pages(tmp_path)
    before = len(served.asked)
    with pytest.raises(BudgetError):
        run_stages([STAGES["questions"]], configure(tmp_path, served, budget=0.5))
    journal = tmp_path / "questions" / "drafts.jsonl"
    first = [row["id"] for row in read(journal)]
    assert 0 < len(first) < len(PARTS)
    counts = run_stages([STAGES["questions"]], configure(tmp_path, served, budget=9))["questions"].counts
    written = [row["id"] for row in read(journal)]
    assert written[: len(first)] == first
    assert set(Counter(written).values()) == {1}
    assert (len(written), counts["questions"]) == (len(PARTS), 2)
    assert counts["cost_per_question"] == pytest.approx(counts["cost"] / 2)
    asked = Counter(json.dumps(body["messages"]) for body in served.asked[before:])
    assert sum(times - 1 for times in asked.values()) <= 2  # replies about the one that was under way


def test_questions_of_the_index_come_first_and_what_is_left_of_none_is_said(
    local_ray: None, served: ChatServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = Question("q", "What is it?", (Evidence("wing.pdf", 1),), split="train")
    finish_pages(tmp_path / "given", (given,))
    run_stages([STAGES["questions"]], configure(tmp_path / "given", served))
    assert "the index has questions" in caplog.text
    folders = tmp_path / "given" / "index", tmp_path / "given" / "questions"
    assert read_run_questions(*folders)["id"].to_pylist() == ["q"]
    finish_pages(tmp_path / "strict")
    with pytest.raises(DataError, match=r"none of 8 written questions is left .*left_out_too_easy 4"):
        run_stages([STAGES["questions"]], configure(tmp_path / "strict", served, min_rank=50))


def test_a_collection_over_documents_alone_asks_what_was_written(local_ray: None, served: ChatServer, tmp_path: Path) -> None:
    (tmp_path / "documents").mkdir()
    for number, part in enumerate(PARTS):
        row = {"file": f"{part}.pdf", "page": 1, "text": TEXT.format(part=part, number=number)}
        (tmp_path / "documents" / f"{part}.jsonl").write_text(json.dumps(row))
    config = configure(tmp_path / "run", served)
    corpus = config.corpus.model_copy(update={"documents": str(tmp_path / "documents")})
    config = config.model_copy(update={"corpus": corpus})
    stages = [stage for stage in list_pipeline(config) if stage.name in ("index", "questions", "collect")]
    finished = run_stages(stages, config)
    assert list(finished) == ["index", "questions", "collect"]
    assert (finished["index"].counts["questions"], finished["collect"].counts["questions"]) == (
        0,
        finished["questions"].counts["train"],
    )
    assert finished["collect"].origin["reads"] == {"index": "index", "questions": "questions"}
    assert set(open_run(tmp_path / "run").read_questions()["split"]) == {"train", "test"}


KESTREL = "The Kestrel has a gyrocompass that was made by Osprey in the year of its first flight."
OSPREY = "Osprey mends each gyrocompass within five days, and sends it back by a bird of prey."
MENDED = {"question": "How fast does its maker mend the gyrocompass of the Kestrel?", "answer": "within five days"}
PICTURED = {"name": "the Kestrel", "question": "How fast does its maker mend the gyrocompass of the plane shown in the image?"}


def answer_of_both(body: dict[str, Any], number: int) -> Answer:
    prompt, asked = (json.dumps(body["messages"][place]["content"]) for place in (-1, 0))
    if "Write one question" in asked:
        return Answer(json.dumps(MENDED))
    if "Rewrite the question" in prompt:
        return Answer(json.dumps(PICTURED))
    if "Answer the question" in prompt:
        return Answer("within five days" if KESTREL in prompt and OSPREY in prompt else "unknown")
    return Answer("<search>gyrocompass</search>")


def test_a_question_is_asked_with_the_picture_where_its_path_starts_made_worse_where_that_is_wanted(
    local_ray: None, tmp_path: Path
) -> None:
    picture = Image.effect_noise((200, 160), 40).convert("RGB")
    key, _ = encode(picture)
    finish_index(tmp_path, [Page("kestrel.md", 1, 1, KESTREL, image=key), Page("osprey.md", 1, 1, OSPREY)], [])
    ImageStore(tmp_path / "index" / "page_images").write(picture)
    with serve_chat(answer_of_both) as served:
        config = configure(tmp_path, served, kinds=["documents"], limit=2, anchor_images=True, test_fraction=0)
        degradation = {"share": 1, "kinds": ["downscale"]}
        config = override(config, {"collect": {"samples_per_question": 1, "degradation": degradation}})
        finished = run_stages([STAGES["questions"], STAGES["collect"]], config)
        counts = finished["questions"].counts
        assert [counts[name] for name in ("questions", "anchored", "not_anchored")] == [1, 1, 0]
        shown = [part for body in served.asked for part in body["messages"][-1]["content"] if isinstance(part, dict)]
    [worse] = [part["image_url"]["url"] for part in shown if part["type"] == "image_url"]
    assert Image.open(io.BytesIO(decode_data_url(worse))).width < 0.41 * picture.width
    [row] = [row for row in read(tmp_path / "questions" / "questions.jsonl") if "images" in row]
    assert [(page["file"], page["links"]) for page in row["path"]] == [
        ("kestrel.md", []),
        ("osprey.md", ["gyrocompass", "osprey"]),
    ]
    assert (row["plain_question"], row["question"]) == (MENDED["question"], PICTURED["question"])
    images = QuestionImages(ImageStore(tmp_path / "again"), [tmp_path / "questions"], max_pixels=10**6)
    read_again, problems = read_questions(tmp_path / "questions" / "questions.jsonl", images=images)
    assert problems == []
    assert [question.evidence for question in read_again if question.images] == [(Evidence("osprey.md", 1),)]


def test_a_path_names_the_hyperlink_that_leads_from_a_document_to_the_next(local_ray: None, tmp_path: Path) -> None:
    texts = {"kestrel.md": KESTREL, "its/makers.html": f"<p>{OSPREY}"}
    for name, text in texts.items():
        (tmp_path / "documents" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "documents" / name).write_text(
            text.replace("Osprey", "[Osprey](./its/makers.html#hall)", name == "kestrel.md")
        )
    with serve_chat(answer_of_both) as served:
        config = configure(tmp_path / "run", served, kinds=["documents"], limit=1, test_fraction=0)
        config = override(config, {"corpus": {"documents": str(tmp_path / "documents")}})
        run_stages([STAGES["index"], STAGES["questions"]], config)
        told = served.asked[0]["messages"][-1]["content"]
    [row] = read(tmp_path / "run" / "questions" / "questions.jsonl")
    names = {page["file"]: page["links"] for page in row["path"]}
    assert names == {"kestrel.md": [], "its/makers.html": ["hyperlink: its/makers.html", "gyrocompass", "osprey"]}
    assert 'Both pages: a hyperlink from page 1 to page 2, "gyrocompass", "osprey"' in told


def test_pictures_that_the_index_lacks_cannot_be_asked_about(served: ChatServer, tmp_path: Path) -> None:
    finish_pages(tmp_path)
    with pytest.raises(ConfigError, match=r"questions\.anchor_images: no question is over .*--corpus\.page-images"):
        run_stages([STAGES["questions"]], configure(tmp_path, served, kinds=["fact"], anchor_images=True))


def test_pages_in_another_language_than_asked_are_set_aside_and_one_that_cannot_be_told_is_refused(
    served: ChatServer, tmp_path: Path
) -> None:
    finish_pages(tmp_path)
    with pytest.raises(DataError, match=r"none of 9 pages can be asked about .*left_out_other_language 8"):
        run_stages([STAGES["questions"]], configure(tmp_path, served, language="de"))
    reasons = Counter(row["reason"] for row in read(tmp_path / "questions" / "left_out_pages.jsonl"))
    assert reasons == {"empty": 1, "other_language": 8}
    with pytest.raises(ConfigError, match=r"questions\.language 'xx' is none that can be told"):
        run_stages([STAGES["questions"]], configure(tmp_path, served, language="xx"))


def test_all_samples_are_in_the_style_and_an_embedding_model_leaves_out_those_that_mean_the_same(
    local_ray: None, served: ChatServer, tmp_path: Path
) -> None:
    """The second draft of each page has the words of the first."""
    finish_pages(tmp_path)
    config = configure(tmp_path, served, samples=2, limit=16, max_cosine=0.999999, filters=["rank", "same_meaning"])
    model = write_embedding_model(tmp_path / "model")
    config = override(
        config,
        {"embedding": {"model": str(model), "window_tokens": 8, "overlap_tokens": 2}, "questions": {"styles": ["a pilot"]}},
    )
    counts = run_stages([STAGES["questions"]], config)["questions"].counts
    assert [counts[f"left_out_{name}"] for name in ("unreadable", "not_found")] == [2, 2]
    assert counts["left_out_same_meaning"] >= 6
    assert counts["left_out_same_meaning"] + counts["questions"] == 12
    rows = read(tmp_path / "questions" / "questions.jsonl")
    assert {row["style"] for row in rows} == {"a pilot"}


def test_the_first_questions_are_over_all_topics_of_a_collection_unless_they_are_over_files_alone(
    local_ray: None, served: ChatServer, tmp_path: Path
) -> None:
    """Of 40 files 36 are about the brake of a plane, and four about its wing."""
    parts = ["brake"] * 36 + ["wing"] * 4
    texts = [f"{TEXT.format(part=part, number=n)} {part} x{chr(97 + n // 20)}{chr(97 + n % 20)}" for n, part in enumerate(parts)]
    pages = [Page(f"{number}.pdf", 1, 1, text) for number, text in enumerate(texts)]
    for topics in (2, 1):
        finish_index(tmp_path / str(topics), pages, [])
        config = configure(tmp_path / str(topics), served, limit=4, topics=topics, filters=[])
        counts = run_stages([STAGES["questions"]], config)["questions"].counts
        assert (counts["files_asked"], counts["topics_asked"], counts["topics"]) == (4, topics, topics)
    drafted = Counter(parts[int(row["file"][:-4])] for row in read(tmp_path / "2" / "questions" / "drafts.jsonl"))
    assert drafted == {"brake": 2, "wing": 2}
