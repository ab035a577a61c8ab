"""Rerankers: the relevance of pages to a question, by a model that reads both at once."""

import math
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from drag_ray.cluster.tasks import ItemStep
from drag_ray.engine.encoders.pair_writer import Pairs, PairWriter, YesOrNoQuestion, load_pair_writer
from drag_ray.engine.encoders.reranker_files import find_files, refuse_unreadable
from drag_ray.engine.models.model_folder import locate_model
from drag_ray.errors import ConfigError
from drag_ray.search.config import Factors, RerankConfig
from drag_ray.search.page_reranker import PageRanker, ScoreHits
from drag_ray.search.searcher import Searcher


class Reranker(ABC):
    """A reranker. Safe to share between threads: while the model reads for one of them, others write what is next.
    `load_reranker` makes the one for a model.

    Attributes:
        writer: writes what it reads.
    """

    def __init__(self, config: RerankConfig, writer: PairWriter) -> None:
        self.writer = writer
        self._config = config
        self._waiting: deque[tuple[Pairs, Future[list[float]]]] = deque()
        self._turn = threading.Lock()
        self._lock = threading.Lock()  # one batch takes all cores, or the GPU, and enough memory

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """Relevance of each text to a question, by its best window. Scores of different models cannot be compared.

        What several threads ask for meanwhile is read together. Raises ConfigError: as `read`.
        """
        pairs = self.writer.write(question, texts)
        asked: Future[list[float]] = Future()
        self._waiting.append((pairs, asked))
        with self._turn:
            if not asked.done():  # by the thread whose turn it was before
                self._read_waiting()
        return asked.result()

    def _read_waiting(self) -> None:
        """Answer all who wait, by their turn."""
        waiting = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            for (_, asked), scores in zip(waiting, self.read([pairs for pairs, _ in waiting]), strict=True):
                asked.set_result(scores)
        except Exception as error:  # each of them asks for the reason
            for _, asked in waiting:
                asked.set_exception(error)

    def read(self, written: Sequence[Pairs], *, names_question: bool = False) -> list[list[float]]:
        """The scores of the texts of each question. All are read at once: more windows of like length stand together. Raises
        ConfigError where the model makes numbers that are infinite or none.

        Args:
            written: of each question.
            names_question: say in an error which question it was. Those of several people are not for each other.
        """
        values = iter(self._read([window for pairs in written for window in pairs.written]))
        scores = [[float("-inf")] * pairs.num_texts for pairs in written]
        for best, pairs in zip(scores, written, strict=True):
            for place in pairs.places:
                value = next(values)
                if not math.isfinite(value):
                    section, dtype = self._config.section, self._config.dtype
                    asked = f" The question is {pairs.question[:200]!r}." if names_question else ""
                    raise ConfigError(
                        f"{section}.model: makes infinite numbers in {dtype}. Set {section}.dtype to float32, "
                        f"or name another model.{asked}"
                    )
                best[place] = max(best[place], value)
        return scores

    @abstractmethod
    def _read(self, written: Sequence[Any]) -> list[float]:
        """The scores of these windows."""


class PairClassifier(Reranker):
    """A cross-encoder of sentence-transformers: its one logit, or that of the second of two classes above the first's."""

    def __init__(self, config: RerankConfig, model: Any, writer: PairWriter) -> None:
        super().__init__(config, writer)
        self._model = model

    def _read(self, written: Sequence[Any]) -> list[float]:
        if not written:
            return []
        # What the folder makes of logits, mostly a sigmoid, would make the best pages of a ranking equal.
        options = {"activation_fn": torch.nn.Identity(), "convert_to_tensor": True, "show_progress_bar": False}
        with self._lock:
            logits = self._model.predict(list(written), batch_size=self._config.batch_size, **options).float()
        return (logits if logits.dim() == 1 else logits[:, 1] - logits[:, 0]).tolist()


class YesOrNo(Reranker):
    """A causal model that is asked whether a text answers the question: the log-odds of `yes` against `no`."""

    def __init__(self, config: RerankConfig, model: Any, writer: YesOrNoQuestion) -> None:
        super().__init__(config, writer)
        self._pad = writer.pad
        self._model = model.eval()
        self._model.set_output_embeddings(_TwoLogits(self._model.get_output_embeddings(), writer.answers))

    def _read(self, written: Sequence[Any]) -> list[float]:
        # What pads the shorter ones costs as much as text.
        order = sorted(range(len(written)), key=lambda number: len(written[number]))
        scores = [0.0] * len(written)
        for start in range(0, len(order), self._config.batch_size):
            batch = order[start : start + self._config.batch_size]
            padded = self._pad([written[number] for number in batch])
            with self._lock, torch.inference_mode():
                found = predict_next(self._model, {name: values.to(self._model.device) for name, values in padded.items()})
            for number, (yes, no) in zip(batch, found.float().tolist(), strict=True):
                scores[number] = yes - no
        return scores


def predict_next(model: Any, written: dict[str, torch.Tensor]) -> torch.Tensor:
    """The logits after the last token of each text, (n, tokens of the model's head): no other position needs any.

    Args:
        model: a causal model of transformers.
        written: what its forward takes of the texts, `attention_mask` of (n, tokens) among it; padded on the left, so that all
            texts end in the last place.
    """
    positions = (written["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return model(**written, position_ids=positions, use_cache=False, logits_to_keep=1).logits[:, -1]


class _TwoLogits(torch.nn.Module):
    """A causal model's head for two tokens alone, in float32. What the model's family does with logits, such as to cap them, is
    left to the model.

    In 16 bits two logits of which each is 20 differ by eighths, and most pages of a ranking would be equal.
    """

    def __init__(self, head: Any, tokens: Sequence[int]) -> None:
        super().__init__()
        self.weight = head.weight[list(tokens)].float()
        self.bias = None if head.bias is None else head.bias[list(tokens)].float()

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(states.float(), self.weight, self.bias)


def load_reranker(config: RerankConfig) -> Reranker:
    """The reranker for a model. Raises ConfigError: as `find_files`, the model's chat template cannot hold what it is asked, or
    it is to run on a GPU and this process has none, or it is to be read in 8 bits and cannot be; and as `check_vocabulary`."""
    if config.device == "gpu" and not torch.cuda.is_available():
        raise ConfigError(f"{config.section}.device gpu: this process has no GPU. Set it to cpu.")
    files = find_files(config)
    writer = load_pair_writer(files)
    device = "cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu"
    if config.dtype == "int8" and (files.is_causal or device == "cuda"):
        raise ConfigError(f"{config.section}.dtype int8: is for a cross-encoder on a CPU. Set it to bfloat16.")
    if not isinstance(writer, YesOrNoQuestion):
        from sentence_transformers import CrossEncoder  # takes seconds, which a causal model does without

        from drag_ray.engine.encoders.loading import check_vocabulary, load_encoder

        dtype = "float32" if config.dtype == "int8" else config.dtype
        option = f"{config.section}.model"
        model = load_encoder(CrossEncoder, locate_model(files.source, option), option, dtype, device)
        check_vocabulary(model, option, config.model)
        if config.dtype == "int8":
            from drag_ray.engine.encoders.int8_classifier import Int8Classifier

            model[0].model = Int8Classifier(model[0].model, model.tokenizer)
        return PairClassifier(files.config, model, writer)
    try:
        causal: Any = AutoModelForCausalLM.from_pretrained(files.source, dtype=getattr(torch, config.dtype))
        causal = causal.to(device)  # before the adapter is added, which takes a CPU seconds
        if files.adapter_dir:
            causal = PeftModel.from_pretrained(causal, str(files.adapter_dir)).merge_and_unload()
    except (OSError, ValueError, KeyError) as error:
        raise refuse_unreadable(config, error) from None
    return YesOrNo(files.config, causal, writer)


class PairsReader(ItemStep):
    """Reads what is written, with a model that is loaded at once: elsewhere the first item is being written."""

    def __init__(self, config: RerankConfig) -> None:
        self._loaded: Reranker | ConfigError
        try:
            self._loaded = load_reranker(config)
        except ConfigError as error:
            self._loaded = error

    def make(self, made: Sequence[tuple[Any, Pairs]]) -> list[tuple[Any, list[float]]]:
        """The scores of the pairs of each question, behind what stands beside them."""
        if isinstance(self._loaded, ConfigError):
            raise self._loaded
        scores = self._loaded.read([pairs for _, pairs in made], names_question=True)
        return [(beside, found) for (beside, _), found in zip(made, scores, strict=True)]


def load_page_ranker(
    config: RerankConfig, searcher: Searcher, weight: float | Factors = 1.0, features: ScoreHits | None = None
) -> PageRanker:
    """The reranker for a model, over an index, beside the scores of features where there are some; raises what `load_reranker`
    does."""
    reranker = load_reranker(config)
    return PageRanker(searcher, reranker.score, reranker.writer.page_chars, weight, features)
