"""Scores of pages for questions: as transformers computes them pair by pair."""

import copy
import json
import random
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from embedded_tokenizer import VOCABULARY, load_shared_tokenizer, write_tokenizer
from embedding_models import WORDS, write_cross_encoder, write_embedding_model
from factories import build_page
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from small_index import write_index
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

from drag_ray.engine.encoders.int8_classifier import Int8Classifier
from drag_ray.engine.encoders.pair_writer import load_pair_writer
from drag_ray.engine.encoders.reranker import YesOrNo, load_reranker
from drag_ray.engine.encoders.reranker_files import describe_other_index, find_files
from drag_ray.engine.models.adapter import check_adapter_writes, read_base_model, write_base_model
from drag_ray.engine.models.embedded import embedded_model_dir
from drag_ray.engine.models.relevance import NOTE_NAME, RerankerNote, write_note
from drag_ray.errors import ConfigError, ServeError, TrainError
from drag_ray.search.config import RerankConfig
from drag_ray.search.index import read_fingerprint
from drag_ray.serve.config import ServeConfig, ServedRerankConfig
from drag_ray.serve.settings import _check_searches

QUESTION = "rotor speed"
TINY: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
}
TEXTS = ["rotor speed limit", "fuel pump", "wing spar load oil filter rotor", "oil"]


def score_pairs(folder: Path, texts: list[str]) -> torch.Tensor:
    """The logits of each pair on its own."""
    model, tokenizer = AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return torch.cat([model.eval()(**tokenizer(QUESTION, text, return_tensors="pt")).logits for text in texts])


@pytest.mark.parametrize("num_labels", [1, 2])
def test_a_cross_encoder_scores_as_it_does_pair_by_pair(tmp_path: Path, num_labels: int) -> None:
    folder = write_cross_encoder(tmp_path / "model", num_labels)
    scores = load_reranker(RerankConfig(model=str(folder), batch_size=3)).score(QUESTION, TEXTS)
    logits = score_pairs(folder, TEXTS)
    expected = logits[:, 0] if num_labels == 1 else logits.softmax(-1).logit()[:, 1]
    torch.testing.assert_close(torch.tensor(scores), expected, atol=1e-4, rtol=1e-4)
    assert len(set(scores)) == len(TEXTS)


def test_a_long_page_is_as_good_as_its_best_window(tmp_path: Path) -> None:
    folder = write_cross_encoder(tmp_path / "model")
    words = [WORDS[number * 7 % 10] for number in range(20)]
    windows = [" ".join(words[start : start + 12]) for start in (0, 10)]
    config = RerankConfig(model=str(folder), window_tokens=12)
    [score] = load_reranker(config).score(QUESTION, [" ".join(words)])
    assert score == pytest.approx(score_pairs(folder, windows).max().item(), abs=1e-4)


def test_a_part_of_a_page_is_read_at_once(tmp_path: Path) -> None:
    folder = write_cross_encoder(tmp_path / "model")
    part = " ".join(WORDS[number * 7 % 10] for number in range(20))
    config = RerankConfig(model=str(folder), page_chars=200, window_tokens=8)
    assert load_reranker(config).score(QUESTION, [part]) == pytest.approx(
        score_pairs(folder, [part]).flatten().tolist(), abs=1e-4
    )


@pytest.mark.seconds
def test_threads_that_write_at_once_write_what_each_would_alone(tmp_path: Path) -> None:
    writer = load_pair_writer(find_files(RerankConfig(model=str(write_cross_encoder(tmp_path / "model")))))
    texts = [" ".join(WORDS * 20)] * 20  # longer than the model reads, which the tokenizer cuts in one call and not in another
    alone = writer.write(QUESTION, texts)
    with ThreadPoolExecutor(8) as threads:
        assert all(pairs == alone for pairs in threads.map(lambda _: writer.write(QUESTION, texts), range(200)))


def test_a_page_without_text_has_a_score_and_no_pages_have_none(tmp_path: Path) -> None:
    reranker = load_reranker(RerankConfig(model=str(write_cross_encoder(tmp_path / "model"))))
    assert torch.isfinite(torch.tensor(reranker.score(QUESTION, ["", "rotor"]))).all()
    assert reranker.score(QUESTION, []) == []


@pytest.mark.seconds
@pytest.mark.parametrize("num_labels", [1, 2])
def test_a_cross_encoder_in_8_bits_scores_nearly_as_in_32_at_any_length(tmp_path: Path, num_labels: int) -> None:
    pytest.importorskip("onnx")
    folder = str(write_cross_encoder(tmp_path / "model", num_labels))
    draw = random.Random(0)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 80))) for _ in range(30)]
    exact, rounded = (
        torch.tensor(load_reranker(RerankConfig(model=folder, dtype=dtype, batch_size=7)).score(QUESTION, texts))
        for dtype in ("float32", "int8")
    )
    assert torch.corrcoef(torch.stack((exact, rounded)))[0, 1] > 0.9  # of 16 numbers a token, far fewer than a real model has
    assert not torch.equal(exact, rounded)


@pytest.mark.seconds
def test_what_cannot_be_exported_or_is_no_cross_encoder_is_not_read_in_8_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnx")
    with pytest.raises(ConfigError, match=r"rerank\.dtype int8: is for a cross-encoder on a CPU"):
        load_reranker(RerankConfig(model=str(embedded_model_dir()), dtype="int8"))
    model = AutoModelForSequenceClassification.from_pretrained(write_cross_encoder(tmp_path / "model"))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    inner = model.forward
    with monkeypatch.context() as patched:
        patched.setattr(torch.onnx, "export", lambda *_, **__: 1 / 0)
        with pytest.raises(ConfigError, match=r"cannot be run by ONNX Runtime .division by zero"):
            Int8Classifier(model, tokenizer)
    # A constant of the trace: the number of texts that it was made with.
    monkeypatch.setattr(model, "forward", lambda **inputs: scale_by_texts(inner(**inputs), len(inputs["input_ids"])))
    with pytest.raises(ConfigError, match="its export gives other scores"):
        Int8Classifier(model, tokenizer)


def scale_by_texts(output: Any, num_texts: int) -> Any:
    output.logits = output.logits * int(num_texts)
    return output


def test_scores_that_are_no_numbers_are_an_error_and_not_an_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reranker: Any = load_reranker(RerankConfig(model=str(write_cross_encoder(tmp_path / "model")), dtype="bfloat16"))
    monkeypatch.setattr(reranker, "_read", lambda written: [float("nan")] * len(written))
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"in bfloat16\. Set rerank.dtype to float32, or name another model\.$"):
            reranker.score(QUESTION, TEXTS)  # others may be told the same
    with pytest.raises(ConfigError, match=f"The question is {QUESTION!r}".replace("?", r"\?")):
        reranker.read([reranker.writer.write(QUESTION, TEXTS)], names_question=True)


def test_what_threads_ask_for_meanwhile_is_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reranker: Any = load_reranker(RerankConfig(model=str(write_cross_encoder(tmp_path / "model"))))
    alone = [reranker.score(word, TEXTS) for word in WORDS[:8]]
    sizes: list[int] = []
    inner, begun, free = reranker._read, threading.Event(), threading.Event()

    def read(written: Any) -> list[float]:
        sizes.append(len(written))
        begun.set()
        assert free.wait(30)
        return inner(written)

    monkeypatch.setattr(reranker, "_read", read)
    with ThreadPoolExecutor(8) as threads:
        found = [threads.submit(reranker.score, WORDS[0], TEXTS)]
        assert begun.wait(30)
        found += [threads.submit(reranker.score, word, TEXTS) for word in WORDS[1:8]]
        while len(reranker._waiting) < 7:
            time.sleep(0.01)
        free.set()
        assert [one.result() for one in found] == [pytest.approx(scores, abs=1e-4) for scores in alone]
    assert sizes == [len(TEXTS), 7 * len(TEXTS)]


def compute_log_odds(reranker: Any, model: Any, texts: list[str]) -> list[float]:
    """The log-odds of yes and no that the model itself, in float32, gives after each text."""
    tokenizer = load_shared_tokenizer()
    log_odds = []
    for text in texts:
        prompt = tokenizer(reranker.writer.write_prompt(QUESTION, text), add_special_tokens=False, return_tensors="pt")
        with torch.no_grad():
            logprobs = model(**prompt).logits[0, -1].log_softmax(-1)
        log_odds.append((logprobs[tokenizer("yes").input_ids[0]] - logprobs[tokenizer("no").input_ids[0]]).item())
    return log_odds


def load_causal(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A causal model with random weights, which tell one page from another."""
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **TINY, initializer_range=0.5)).save_pretrained(folder)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def written_adapter(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An adapter of that model that changes what it says, and is noted as one that was trained to rank."""
    folder = tmp_path_factory.mktemp("ranking") / "adapter"
    config = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    torch.manual_seed(0)
    get_peft_model(load_causal(base), config).save_pretrained(str(folder))
    write_base_model(folder, read_base_model(str(base)))
    write_note(folder, RerankerNote(instruction="Find the page on rotors."))
    return folder


@pytest.fixture
def ranking_adapter(written_adapter: Path, tmp_path: Path) -> Path:
    """A copy of that adapter, which a test may damage."""
    return shutil.copytree(written_adapter, tmp_path / "adapter")


@pytest.mark.seconds
def test_an_adapter_that_was_trained_to_rank_scores_on_its_base_model_as_it_was_told(base: Path, ranking_adapter: Path) -> None:
    config = RerankConfig(model=str(ranking_adapter))
    find_files(config)
    reranker: Any = load_reranker(config)
    assert "Find the page on rotors." in reranker.writer.write_prompt(QUESTION, "")
    texts = ["The rotor may turn at 340 rpm.", "Fuel."]
    plain = compute_log_odds(reranker, load_causal(base), texts)
    adapted = PeftModel.from_pretrained(load_causal(base), str(ranking_adapter)).eval()
    expected = compute_log_odds(reranker, adapted, texts)
    assert reranker.score(QUESTION, texts) == pytest.approx(expected, abs=1e-3)
    assert plain != pytest.approx(expected, abs=1e-2)
    with pytest.raises(TrainError, match="a reranker, which judges pages and writes no query"):
        check_adapter_writes(ranking_adapter)


@pytest.mark.seconds
def test_it_reads_as_much_of_a_page_as_it_was_trained_on_unless_that_is_said(ranking_adapter: Path) -> None:
    write_note(ranking_adapter, RerankerNote(instruction="Find.", page_chars=900))
    model = str(ranking_adapter)
    asked = [RerankConfig(model=model), RerankConfig(model=model, page_chars=0), RerankConfig(model="embedded")]
    assert [load_pair_writer(find_files(config)).page_chars for config in asked] == [900, 0, 0]


@pytest.mark.seconds
def test_one_that_was_trained_for_another_index_is_named_and_not_served_unless_that_is_said(
    ranking_adapter: Path, tmp_path: Path
) -> None:
    write_index(tmp_path / "index", [build_page()], [])
    index_dir = tmp_path / "index" / "search_index"
    folder, config = ranking_adapter, ServedRerankConfig(model=str(ranking_adapter))
    write_note(folder, RerankerNote(instruction="Find.", index_fingerprint=read_fingerprint(index_dir)))
    assert not describe_other_index(find_files(config), index_dir)
    _check_searches(tmp_path / "index", None, ServeConfig(rerank=config), [])
    for fingerprint, said in (
        ("0123abcd", r"was trained for another index \(0123abcd\)"),
        ("", "has no note that it was trained"),
    ):
        write_note(folder, RerankerNote(instruction="Find.", index_fingerprint=fingerprint))
        with pytest.raises(ServeError, match=rf"^serve\.rerank\.model .* {said}.*--serve\.rerank\.other-index serves it so"):
            _check_searches(tmp_path / "index", None, ServeConfig(rerank=config), [])
        _check_searches(tmp_path / "index", None, ServeConfig(rerank=config.model_copy(update={"other_index": True})), [])


def test_a_public_cross_encoder_is_not_served_unless_that_is_said(tmp_path: Path) -> None:
    write_index(tmp_path / "index", [build_page()], [])
    config = ServedRerankConfig(model=str(write_cross_encoder(tmp_path / "public")))
    with pytest.raises(
        ServeError, match=r"public' has no note that it was trained for the index.*compare `rerank` with `question`"
    ):
        _check_searches(tmp_path / "index", None, ServeConfig(rerank=config), [])
    _check_searches(tmp_path / "index", None, ServeConfig(rerank=config.model_copy(update={"other_index": True})), [])


@pytest.mark.seconds
def test_an_adapter_that_was_not_trained_to_rank_or_belongs_to_another_model_is_refused(ranking_adapter: Path) -> None:
    folder = ranking_adapter
    (folder / NOTE_NAME).unlink()
    with pytest.raises(ConfigError, match=r"an adapter that was not trained to rank\. Train one: python jobs/finetune\.py"):
        find_files(RerankConfig(model=str(folder)))
    write_note(folder, RerankerNote(instruction="Find."))
    (folder / "drag_ray_base.json").write_text(
        json.dumps({"name": "embedded", "fingerprint": "other", "hidden_size": 8, "num_layers": 1})
    )
    with pytest.raises(ConfigError, match="this adapter was trained on 'embedded'"):
        load_reranker(RerankConfig(model=str(folder)))


@pytest.mark.seconds
def test_an_adapter_that_changes_nothing_or_is_a_pickle_is_refused(ranking_adapter: Path) -> None:
    folder = ranking_adapter
    weights_path = folder / "adapter_model.safetensors"
    weights = load_file(weights_path)
    save_file({name: torch.zeros_like(tensor) for name, tensor in weights.items()}, weights_path)
    with pytest.raises(ConfigError, match="so the adapter has learned nothing"):
        find_files(RerankConfig(model=str(folder)))
    weights_path.unlink()
    torch.save(weights, folder / "adapter_model.bin")
    with pytest.raises(ConfigError, match="they are pickles"):
        find_files(RerankConfig(model=str(folder)))


@pytest.mark.seconds
def test_an_adapter_has_nothing_fetched_that_the_options_do_not_name(base: Path, ranking_adapter: Path) -> None:
    folder = ranking_adapter
    note = json.loads((folder / "drag_ray_base.json").read_text())
    (folder / "drag_ray_base.json").write_text(json.dumps({**note, "name": "s3://elsewhere/model"}))
    with pytest.raises(ConfigError, match=r"names a base model in an object store, 's3://elsewhere/model', which is not fetched"):
        find_files(RerankConfig(model=str(folder)))
    find_files(RerankConfig(model=str(folder), base=str(base)))


@pytest.mark.seconds
def test_a_causal_model_scores_by_its_log_odds_of_yes_and_no(base: Path) -> None:
    config = RerankConfig(model=str(base), batch_size=2)
    reranker: Any = load_reranker(config)
    writer: Any = reranker.writer
    assert isinstance(reranker, YesOrNo)
    texts = ["The rotor may turn at 340 rpm, which is its limit in flight.", "Fuel."]
    expected = compute_log_odds(reranker, load_causal(base), texts)
    assert reranker.score(QUESTION, texts) == pytest.approx(expected, abs=1e-3)
    assert config.instruction in writer.write_prompt(QUESTION, "")


@pytest.mark.seconds
@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("gemma2", {"final_logit_softcapping": 0.5, "head_dim": 8, "query_pre_attn_scalar": 8}),
        ("cohere", {"logit_scale": 4.0, "pad_token_id": 0}),
        ("phi", {}),  # its head has a bias
    ],
)
def test_what_a_family_does_to_its_logits_counts(tmp_path: Path, family: str, more: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **TINY, num_key_value_heads=2, **more))
    for parameter in model.get_output_embeddings().parameters():
        torch.nn.init.normal_(parameter)
    model.save_pretrained(tmp_path)
    write_tokenizer(tmp_path)
    reranker: Any = load_reranker(RerankConfig(model=str(tmp_path)))
    assert reranker.score(QUESTION, TEXTS) == pytest.approx(compute_log_odds(reranker, load_causal(tmp_path), TEXTS), abs=1e-4)


@pytest.mark.seconds
def test_scores_of_a_causal_model_in_16_bits_are_finer_than_its_logits() -> None:
    texts = [f"The rotor may turn at {number} rpm." for number in range(300, 304)]
    scores = load_reranker(RerankConfig(model=str(embedded_model_dir()), dtype="bfloat16")).score(QUESTION, texts)
    exact = load_reranker(RerankConfig(model=str(embedded_model_dir()))).score(QUESTION, texts)
    assert len(set(scores)) == len(texts)
    assert scores == pytest.approx(exact, abs=0.1)


@pytest.mark.seconds
def test_a_causal_model_that_cannot_be_asked_is_refused(tmp_path: Path) -> None:
    AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **TINY)).save_pretrained(tmp_path)
    tokenizer: Any = copy.deepcopy(load_shared_tokenizer())
    for template, reason in (("{{ raise_exception('no system role') }}", "no system role"), (None, "chat_template is not set")):
        tokenizer.chat_template = template
        tokenizer.save_pretrained(tmp_path)
        if not template:
            (tmp_path / "chat_template.jinja").unlink()
        with pytest.raises(ConfigError, match=rf"rerank\.model .*its chat template does not take.*{reason}"):
            load_reranker(RerankConfig(model=str(tmp_path)))


def test_a_model_that_ranks_nothing_is_refused(tmp_path: Path) -> None:
    embedding, classes = write_embedding_model(tmp_path / "embedding"), write_cross_encoder(tmp_path / "classes", num_labels=3)
    for model, reason in (
        (embedding, "is a BertModel of 2 labels"),
        (classes, "of 3 labels"),
        (tmp_path / "encoder", r"no such folder \(is it trained yet\?\), and no model of the Hugging Face Hub"),
    ):
        for look in (find_files, load_reranker):
            with pytest.raises(ConfigError, match=reason):
                look(RerankConfig(model=str(model)))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_asked_for_in_vain() -> None:
    with pytest.raises(ConfigError, match=r"rerank\.device gpu: this process has no GPU"):
        load_reranker(RerankConfig(model=str(embedded_model_dir()), device="gpu"))
