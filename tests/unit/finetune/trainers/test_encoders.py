"""Training of encoders: rows from judged pages, a real training of tiny models, and what is published of it."""

import json
import math
import shutil
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import torch
from embedding_models import write_cross_encoder, write_embedding_model
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.record import AgentRecord
from drag_ray.cluster.metrics import StageRecorder
from drag_ray.engine.encoders.embedding import Embedder
from drag_ray.engine.encoders.reranker import load_reranker
from drag_ray.engine.models.model_files import WEIGHTS_NAME
from drag_ray.engine.models.relevance import EmbedderNote, read_note
from drag_ray.errors import ConfigError, DataError, NotFiniteError, TrainError
from drag_ray.finetune import encoder_trainer
from drag_ray.finetune.config import FinetuneConfig, TrainJob
from drag_ray.finetune.methods.cross_encoder import CrossEncoder
from drag_ray.finetune.methods.embed import Embed
from drag_ray.finetune.methods.encoder import EncoderMethod, softmax
from drag_ray.finetune.outputs.publication import publish_encoder
from drag_ray.finetune.rows.tokenized_rows import group_rows
from drag_ray.finetune.rows.training_rows import tokenize_training_rows
from drag_ray.finetune.training_folder import Description, find_encoder, find_reranker
from drag_ray.search.config import EmbeddingConfig, RerankConfig

THINGS = ("rotor", "speed", "limit", "fuel", "pump", "wing", "spar", "load", "oil", "filter")
WRITERS: dict[str, Callable[..., Path]] = {"cross_encoder": write_cross_encoder, "embed": write_embedding_model}
by_method = pytest.mark.parametrize("method", WRITERS)


def judge(question: str, *evidence: str, others: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    pages = [*((passage, True) for passage in evidence), *((passage, False) for passage in others)]
    return [{"question": question, "passage": passage, "is_evidence": kind} for passage, kind in pages]


def build_rows() -> list[dict[str, Any]]:
    """A question about a thing is answered by the page that names it before all else."""
    return [
        row
        for place, thing in enumerate(THINGS)
        for row in judge(
            f"query: {thing}",
            f"page: {thing} {THINGS[place - 1]}",
            others=(f"page: {THINGS[place - 2]}", f"page: {THINGS[place - 3]}"),
        )
    ]


def write_job(folder: Path, method: str, rows: list[dict[str, Any]] | None = None, **options: Any) -> TrainJob:
    rows = build_rows() if rows is None else rows
    for name in ("train", "validation"):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    model = WRITERS[method](folder / "start")
    own = {"model": str(model), "max_tokens": 16, **options.pop("own", {})}
    given = {
        "method": method,
        "epochs": 30,
        "batch_size": 5,
        "learning_rate": 1e-2,
        "checkpoint_steps": 30,
        method: own,
        **options,
    }
    train, validation = folder / "train.jsonl", folder / "validation.jsonl"
    return TrainJob(FinetuneConfig.model_validate(given), str(model), train, validation, (), False, num_workers=1, num_threads=1)


def train(job: TrainJob, kept: Path, resume_from: Path | None = None) -> dict[str, Any]:
    def keep(metrics: dict[str, Any], folder: Path) -> None:
        shutil.copytree(folder, kept / folder.name)

    return encoder_trainer.train(job, tokenize_training_rows(job), keep, resume_from, StageRecorder())


def publish(job: TrainJob, checkpoint: Path, outcome: dict[str, Any], stage_dir: Path) -> Path:
    row_options = {"relevance_chars": 300, "teacher": {"model": "large/reader"}}
    counts = {**outcome["counts"], "steps": 60}
    record = AgentRecord(agent=AgentConfig(), index_fingerprint="0123abcd")
    described = Description(job.config, counts, {"format": "ab"}, record, row_options, outcome["probe"])
    publish_encoder(checkpoint, job.model, described, stage_dir)
    found = find_encoder(stage_dir)
    assert found
    return found


def test_all_pages_of_a_question_stand_together_and_several_are_evidence() -> None:
    pages = judge("a", "first", "second", others=("third",))
    [row] = CrossEncoder().read(pages).rows
    assert (row["query"], row["docs"]) == ("a", ["first", "second", "third"])
    shares = torch.tensor(row["labels"]).softmax(0)  # ListNet learns these
    assert shares.tolist() == pytest.approx([0.5, 0.5, 0.0], abs=1e-6)
    rows = Embed(negatives=2).read(pages).rows
    assert [(row["anchor"], row["positive"], row["negative_1"], row["negative_2"]) for row in rows] == [
        ("a", "first", "third", "third"),
        ("a", "second", "third", "third"),
    ]
    assert "negative_1" not in Embed(negatives=0).read(pages).rows[0]


@by_method
def test_questions_with_pages_of_one_kind_are_counted_and_alone_refused(method: str, tmp_path: Path) -> None:
    alone = [*judge("a", "first"), *judge("b", others=("second",))]
    job = write_job(tmp_path, method, [*alone, *build_rows()])
    assert tokenize_training_rows(job).counts["rows_without_advantage"] == 2
    shutil.rmtree(tmp_path / "start")
    with pytest.raises(
        DataError, match=r"train\.jsonl: in all 2 rows no question has both evidence and another page with other text\. Raise"
    ):
        tokenize_training_rows(write_job(tmp_path, method, alone))


@by_method
def test_pages_that_read_as_the_evidence_are_left_out_and_alone_refused(method: str, tmp_path: Path) -> None:
    alike = judge("a", "first", "second", others=("second", "first"))
    mixed = judge("b", "third", others=("third", "fourth"))
    job = write_job(tmp_path, method, [*alike, *mixed])
    read = tokenize_training_rows(job)
    assert read.counts["rows_without_advantage"] == 4
    chosen = job.config.chosen_method
    assert isinstance(chosen, EncoderMethod)
    assert [set(chosen.take_probe(row)[1]) for row in read.train.rows] == [{"third", "fourth"}]
    shutil.rmtree(tmp_path / "start")
    with pytest.raises(DataError, match=r"in all 4 rows no question has both evidence and another page with other text\. Raise"):
        tokenize_training_rows(write_job(tmp_path, method, alike))


@pytest.mark.seconds
@by_method
def test_a_model_that_scores_all_pages_of_a_question_alike_is_refused(method: str, tmp_path: Path) -> None:
    rows = [row for thing in THINGS for row in judge(f"query: {thing}", f"{thing}s", others=(f"{thing}es", f"{thing}ing"))]
    job = write_job(tmp_path, method, rows, epochs=2)  # of none of these words the model knows one
    with pytest.raises(TrainError, match=r"gives all pages of a question the same score\. Lower finetune\.learning_rate"):
        train(job, tmp_path / "kept")


@pytest.mark.seconds
@by_method
def test_it_learns_and_what_is_published_is_what_was_trained(method: str, tmp_path: Path) -> None:
    job = write_job(tmp_path, method)
    outcome = train(job, tmp_path / "kept")
    losses = [point["eval_loss"] for point in outcome["curve"] if "eval_loss" in point]
    assert losses[-1] < 0.5 * losses[0]
    assert outcome["curve"][-1]["tokens"] > 0
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["checkpoint-30", "checkpoint-60"]
    assert [len(list((tmp_path / "kept").glob(f"*-{step}/optimizer.pt"))) for step in (30, 60)] == [1, 0]
    again = train(job, tmp_path / "again", tmp_path / "kept" / "checkpoint-60")
    assert not (tmp_path / "again").exists()
    assert again["curve"] == outcome["curve"]
    assert again["probe"]["scores"] == pytest.approx(outcome["probe"]["scores"], rel=1e-5)

    folder = publish(job, tmp_path / "kept" / "checkpoint-60", outcome, tmp_path)
    assert not [path for path in folder.rglob("*") if path.name.startswith(("optimizer", "trainer_state", "training_args"))]
    card = (folder / "README.md").read_text()
    assert "library_name: sentence-transformers" in card
    assert "lora_r" not in card
    assert "distillation)" not in card
    note = read_note(folder) if method == "cross_encoder" else read_note(folder, EmbedderNote)
    assert note
    assert note.index_fingerprint == "0123abcd"
    question, pages = "query: wing", ["page: rotor", "page: wing pump"]
    if method == "cross_encoder":
        assert find_reranker(tmp_path) == folder
        reranker = load_reranker(RerankConfig(model=str(folder)))
        assert reranker.writer.page_chars == 300
        scores = reranker.score(question, pages)
    else:
        assert find_reranker(tmp_path) is None
        embedder = Embedder(EmbeddingConfig(model=str(folder), window_tokens=16, overlap_tokens=4))
        scores = (embedder.embed_pages(pages) @ embedder.embed_queries([question])[0]).tolist()
    assert scores[1] > scores[0]


@pytest.mark.seconds
def test_each_question_of_a_step_counts_alike_however_it_is_cut_into_batches(tmp_path: Path) -> None:
    losses, rows = [], []
    for place, thing in enumerate(THINGS):  # the more pages, the higher the loss before training
        rows += judge(
            f"query: {thing}", f"page: {thing}", others=tuple(f"page: {other} x" for other in THINGS[:place] or ("oil",))
        )
    for size, accumulation in ((10, 1), (3, 4)):
        folder = tmp_path / str(size)
        folder.mkdir()
        cut = {"batch_size": size, "gradient_accumulation": accumulation, "epochs": 1, "checkpoint_steps": 1}
        job = write_job(folder, "cross_encoder", rows, **cut)
        config_path = folder / "start" / "config.json"
        without = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
        config_path.write_text(json.dumps({**json.loads(config_path.read_text()), **without}))
        [loss] = [point["loss"] for point in train(job, folder / "kept")["curve"] if "loss" in point]
        losses.append(loss)
    assert losses == pytest.approx([losses[0]] * 2, rel=1e-3)


@pytest.mark.seconds
@by_method
def test_a_training_that_goes_on_ends_as_one_that_was_never_stopped(method: str, tmp_path: Path) -> None:
    job = write_job(tmp_path, method)
    whole = train(job, tmp_path / "whole")
    resumed = train(job, tmp_path / "resumed", tmp_path / "whole" / "checkpoint-30")
    assert resumed["curve"][-1]["eval_loss"] == pytest.approx(whole["curve"][-1]["eval_loss"], abs=1e-5)
    assert resumed["curve"][-1]["tokens"] == whole["curve"][-1]["tokens"]
    assert resumed["probe"]["scores"] == pytest.approx(whole["probe"]["scores"], abs=1e-4)


@pytest.mark.seconds
@by_method
def test_weights_that_are_not_those_that_were_trained_are_not_published(method: str, tmp_path: Path) -> None:
    job = write_job(tmp_path, method, epochs=2, checkpoint_steps=4)
    outcome = train(job, tmp_path / "kept")
    checkpoint = tmp_path / "kept" / "checkpoint-4"
    weights = load_file(checkpoint / WEIGHTS_NAME)
    save_file(
        {name: weight + torch.randn_like(weight) for name, weight in weights.items()}, checkpoint / WEIGHTS_NAME, {"format": "pt"}
    )
    with pytest.raises(TrainError, match="scores the pages of the first question otherwise than the trained one"):
        publish(job, checkpoint, outcome, tmp_path)
    assert find_encoder(tmp_path) is None


@pytest.mark.seconds
@by_method
def test_numbers_that_are_not_finite_and_trainings_that_change_nothing_are_refused(method: str, tmp_path: Path) -> None:
    job = write_job(tmp_path, method, learning_rate=1e30, epochs=3)
    with pytest.raises(NotFiniteError, match=r"finetune step 2: .*question \d.*learning_rate .*1e\+30 now"):
        train(job, tmp_path / "kept")
    shutil.rmtree(tmp_path / "start")
    job = write_job(tmp_path, method, learning_rate=1e-12, epochs=1)
    with pytest.raises(TrainError, match=r"training has changed nothing.*learning_rate 1e-12"):
        train(job, tmp_path / "again")


@pytest.mark.seconds
@by_method
def test_what_cannot_be_trained_is_refused_in_a_sentence(method: str, tmp_path: Path) -> None:
    job = write_job(tmp_path, method)
    chosen = job.config.chosen_method
    assert isinstance(chosen, EncoderMethod)
    (tmp_path / "start" / WEIGHTS_NAME).write_bytes(b"none")
    with pytest.raises(ConfigError, match=rf"{chosen.option} '.*': cannot be read by sentence-transformers"):
        train(job, tmp_path / "kept")
    (tmp_path / "start" / WEIGHTS_NAME).rename(tmp_path / "start" / "pytorch_model.bin")
    with pytest.raises(ConfigError, match=rf"weights as a pickle, which are not read\. Name a {chosen.option} with"):
        train(job, tmp_path / "kept")


@pytest.mark.seconds
@by_method
def test_a_tokenizer_with_more_tokens_than_the_model_embeds_is_refused(method: str, tmp_path: Path) -> None:
    job = write_job(tmp_path, method, epochs=1)
    tokenizer = AutoTokenizer.from_pretrained(job.model)
    tokenizer.add_tokens(["rivet", "hinge"])
    tokenizer.save_pretrained(job.model)
    told = r"\.model '.*': its tokenizer has 18 tokens, .* for 16 of them\. Put .*resize"
    with pytest.raises(ConfigError, match=method + told):
        train(job, tmp_path / "kept")
    reads = {"cross_encoder": lambda: load_reranker(RerankConfig(model=job.model))}
    with pytest.raises(ConfigError, match=told):
        reads.get(method, lambda: Embedder(EmbeddingConfig(model=job.model)))()


@pytest.mark.seconds
def test_vectors_are_cut_to_less_than_they_have(tmp_path: Path) -> None:
    job = write_job(tmp_path, "embed", epochs=2, own={"dimensions": [8]})
    assert train(job, tmp_path / "kept")["curve"][-1]["eval_loss"] > 0
    shutil.rmtree(tmp_path / "start")
    with pytest.raises(TrainError, match=r"finetune\.embed\.dimensions 16: the vectors of .* have 16, so expected less"):
        train(write_job(tmp_path, "embed", own={"dimensions": [16]}), tmp_path / "other")


def score(rows: list[dict[str, Any]], *scores: float | None) -> list[dict[str, Any]]:
    return [{**row, "score": found} for row, found in zip(rows, scores, strict=True)]


def build_distilled_rows() -> list[dict[str, Any]]:
    """A teacher likes some things more than others, whatever is asked; of every other question nobody says what answers it."""
    rows = [{**row, "score": 2.0 * THINGS.index(row["passage"].split()[1])} for row in build_rows()]
    return [{**row, "is_evidence": None} if place % 6 < 3 else row for place, row in enumerate(rows)]


def test_scores_of_a_teacher_and_labels_are_mixed_by_their_shares() -> None:
    pages = score(judge("a", "first", others=("second", "third")), 0.0, math.log(2), math.log(5))
    for share, expected in ((0.8, [0.3, 0.2, 0.5]), (1.0, [0.125, 0.25, 0.625]), (0.0, [1.0, 0.0, 0.0])):
        [row] = CrossEncoder(distillation=share).read(pages).rows
        assert softmax(row["labels"]) == pytest.approx(expected, abs=1e-6)
    [row] = Embed(negatives=2, distillation=0.5).read(pages).rows
    assert (row["positive"], row["labels"]) == ("first", [0.0, math.log(2), math.log(5)])
    assert "labels" not in Embed(negatives=2, distillation=0).read(pages).rows[0]

    unlabelled = [{**page, "is_evidence": None} for page in pages]
    [row] = CrossEncoder().read(unlabelled).rows
    assert softmax(row["labels"]) == pytest.approx([0.125, 0.25, 0.625])
    [row] = Embed(negatives=2).read(unlabelled).rows
    assert (row["positive"], row["negative_1"], row["negative_2"]) == ("third", "first", "second")
    assert CrossEncoder(distillation=0).read(unlabelled).num_without_advantage == 3


def test_a_teacher_that_tells_no_pages_apart_teaches_nothing_and_one_without_numbers_is_refused() -> None:
    labelled = judge("a", "first", others=("second",))
    for scores in ((3.0, 3.0), (None, None), (1.0, None)):
        read = CrossEncoder().read(score(labelled, *scores))
        assert (read.rows, read.num_distilled) == (CrossEncoder().read(labelled).rows, 0)
        unlabelled = [{**page, "is_evidence": None} for page in score(labelled, *scores)]
        assert CrossEncoder().read(unlabelled).num_without_advantage == 2
        [row] = Embed(negatives=1).read(score(labelled, *scores)).rows
        assert softmax(row["labels"]) == pytest.approx([1, 0], abs=1e-6)  # all rows of a file have them
    with pytest.raises(DataError, match=r"question 'a': a score .* is not a finite number\..*format\.teacher\.dtype float32"):
        CrossEncoder().read(score(labelled, 1.0, math.nan))


@pytest.mark.seconds
@by_method
def test_a_distilled_model_follows_its_teacher_where_labels_are_missing_and_says_so(method: str, tmp_path: Path) -> None:
    rows = build_distilled_rows()
    job = write_job(tmp_path, method, rows, own={"distillation": 1.0}, epochs=70, checkpoint_steps=140)
    outcome = train(job, tmp_path / "kept")
    assert outcome["counts"]["questions_distilled"] == len(THINGS)
    chosen = job.config.chosen_method
    assert isinstance(chosen, EncoderMethod)
    folder = publish(job, tmp_path / "kept" / "checkpoint-140", outcome, tmp_path)
    right = 0
    for pages in group_rows([row for row in rows if row["is_evidence"] is None], itemgetter("question")):
        found = chosen.score_published(folder, pages[0]["question"], [page["passage"] for page in pages])
        right += pages[found.index(max(found))]["score"] == max(page["score"] for page in pages)
    assert right >= 4
    card = (folder / "README.md").read_text()
    assert "the scores that `large/reader` gives to pages (distillation)" in card
    assert "- distillation\n" in card


def test_records_hold_no_options_of_adapters() -> None:
    options = FinetuneConfig(method="embed").model_dump()
    assert options["embed"]["model"] == "embedded-minilm"
    assert not {"lora_r", "merge", "start", "cross_encoder"} & options.keys()
