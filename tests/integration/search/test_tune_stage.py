"""The choice of a search by a real embedding model, where questions have other words than the pages that answer them."""

import json
from pathlib import Path
from typing import Any

import pytest

from drag_ray.agent.retrieval import open_page_index
from drag_ray.agent.tasks.find_page import to_search
from drag_ray.config import build
from drag_ray.corpus.questions import read_split
from drag_ray.errors import ConfigError, DataError
from drag_ray.pipeline.run_config import RunConfig
from drag_ray.pipeline.runner import run_stages
from drag_ray.pipeline.stages import STAGES
from drag_ray.pipeline.tuning import tune_search
from drag_ray.search import vectors
from drag_ray.search.searcher import Searcher
from drag_ray.storage.artifacts import read_manifest
from drag_ray.tune.choice_folder import read_options
from drag_ray.tune.first_stages import FirstStage, RankEvidence, find_ranks, list_first_stages

THINGS = {
    **{"automobile": "car", "physician": "doctor", "infant": "baby", "feline": "cat", "canine": "dog", "aircraft": "plane"},
    **{
        "vessel": "ship",
        "residence": "house",
        "bicycle": "bike",
        "television": "TV set",
        "footwear": "shoes",
        "cutlery": "spoons",
    },
    **{"precipitation": "rain", "currency": "money", "photograph": "picture", "volume": "book", "timepiece": "watch"},
    **{"sofa": "couch", "refrigerator": "fridge", "trousers": "pants", "spectacles": "glasses", "rodent": "mouse"},
    **{"beverage": "drink", "attorney": "lawyer"},
}
"""What pages call a thing, and what questions do."""
TOPICS = {
    "purchase and cost": "How much is a {}?",
    "repair and upkeep": "Who fixes a {}?",
    "origin": "Where does a {} come from?",
}


def write_collection(folder: Path, num_things: int = len(THINGS)) -> dict[str, Any]:
    """A file a thing, with a page a topic, and a question to each page; as options."""
    (folder / "documents").mkdir()
    questions = []
    for name, asked in list(THINGS.items())[:num_things]:
        pages = [{"file": name, "page": page, "text": f"{name}: {topic}"} for page, topic in enumerate(TOPICS, start=1)]
        (folder / "documents" / f"{name}.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
        for page, question in enumerate(TOPICS.values(), start=1):
            evidence = {"question": question.format(asked), "gold": [[name, page]], "split": "train"}
            questions.append({"id": f"{name}-{page}", **evidence})
    (folder / "questions.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    return {"documents": str(folder / "documents"), "questions": str(folder / "questions.jsonl")}


@pytest.fixture(scope="module")
def config(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    folder = tmp_path_factory.mktemp("tune")
    options = {"run_dir": folder / "run", "tune_search": True, "format": {"relevance_retrieval": "bm25"}}
    return build(RunConfig, {**options, "corpus": write_collection(folder), "embedding": {"model": "embedded-minilm"}})


def test_vectors_are_chosen_where_words_differ_and_what_follows_has_plain_options(
    config: RunConfig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "drag_ray")
    tuned, finished = tune_search(config)
    assert list(finished) == ["index", "tune"]
    counts = finished["tune"].counts
    assert counts["choosing_questions"] + counts["checking_questions"] == 3 * len(THINGS)
    assert counts["checking_questions"] == 36
    assert tuned.agent.retrieval in ("dense", "hybrid")
    assert tuned.format.relevance_retrieval == "bm25"  # as it was set
    assert read_options(config.run_dir / "tune")["agent"]["retrieval"] == tuned.agent.retrieval
    assert f"tune: takes agent.retrieval='{tuned.agent.retrieval}'" in caplog.text
    assert "Set: --agent.retrieval" in caplog.text
    rows = [json.loads(line) for line in (config.run_dir / "tune" / "first_stages.jsonl").read_text().splitlines()]
    mrr = {row["first_stage"]: row["mrr"] for row in rows if row["part"] == "checking"}
    assert mrr["dense"] > mrr["key words"] + 0.1
    again, _ = tune_search(config)
    assert again == tuned
    assert caplog.text.count("unchanged, skipped") == 2


def test_first_stages_find_what_an_agent_finds_with_the_same_options(config: RunConfig) -> None:
    index_dir = config.run_dir / "index"
    questions = read_split(index_dir, "train")[:12]
    stages = list_first_stages(config.agent, has_vectors=True)
    found = RankEvidence(index_dir, config.agent, stages)(questions)
    searcher = Searcher(index_dir / "search_index")
    for stage in (FirstStage("bm25", "all"), FirstStage("dense", "key"), *(FirstStage("hybrid", "key", w) for w in (None, 0.35))):
        assert stage.retrieval != "union"
        options = {"retrieval": stage.retrieval, "question_words": stage.words, "dense_weight": stage.dense_weight}
        agent = config.agent.model_copy(update=options)
        index = open_page_index(searcher, agent.retrieval, index_dir / vectors.DIR_NAME, agent.dense_weight)
        for question, ranks in zip(questions, found, strict=True):
            asked: Any = to_search(agent, question)
            hits = index.search_expanded(asked.question, "", asked.weight, 100, asked.words)
            assert ranks[stages.index(stage)] == find_ranks([hit.page for hit in hits], question.evidence)


def test_what_cannot_be_told_is_said_and_what_cannot_be_searched_refused(
    local_ray: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "drag_ray")
    config = build(RunConfig, {"run_dir": tmp_path / "run", "corpus": write_collection(tmp_path, num_things=4)})
    manifests = run_stages([STAGES["index"], STAGES["tune"]], config)
    assert manifests["tune"].counts["shown"] == "key words"
    assert "the index has no vectors" in caplog.text
    assert "The search stays as it is configured: 12 training questions with evidence are too few" in caplog.text
    assert read_options(config.run_dir / "tune") == {}
    with pytest.raises(ConfigError, match=r"agent.retrieval 'dense': .* has no vectors"):
        run_stages([STAGES["tune"]], build(RunConfig, {"run_dir": config.run_dir, "agent": {"retrieval": "dense"}}))
    (tmp_path / "questions.jsonl").write_text(json.dumps({"id": "1", "question": "?", "split": "train"}) + "\n")
    without = config.model_copy(update={"corpus": config.corpus.model_copy(update={"allow_unanswerable": True})})
    with pytest.raises(DataError, match=r"none of 1 train questions has evidence"):
        run_stages([STAGES["index"], STAGES["tune"]], without)
    assert read_manifest(config.run_dir / "tune") is None
