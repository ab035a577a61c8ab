"""Rerankers at work: how well pages answer a question, by a model that reads both at once."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from transformers.tokenization_utils_base import BatchEncoding

from drag_ray.engine.adapter import ADAPTER_CONFIG_NAME, check_adapter_fits, read_base_model, read_noted_name
from drag_ray.engine.control_tokens import disarm
from drag_ray.engine.model_folder import resolve_model
from drag_ray.engine.relevance import NO, YES, read_note, write_question
from drag_ray.engine.windows import plan_windows
from drag_ray.errors import ConfigError, DataError, TrainError
from drag_ray.object_store import is_uri
from drag_ray.search.config import RerankConfig


class Reranker(ABC):
    """A reranker. Safe to share between threads: while the model reads for one of them, others cut and write what is next.
    `load_reranker` makes the one for a model.

    Args:
        config: the model and how it reads.
        model: of transformers.
        source: folder or name of its tokenizer.
    """

    def __init__(self, config: RerankConfig, model: Any, source: str) -> None:
        self._config = config
        self._device = "cuda" if config.device != "cpu" and torch.cuda.is_available() else "cpu"
        self._model = model.to(self._device).eval()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(source)
        self._tokenizer.pad_token = self._tokenizer.pad_token or self._tokenizer.eos_token
        self._lock = threading.Lock()  # one batch takes all cores, or the GPU, and enough memory

    def score(self, question: str, texts: Sequence[str]) -> list[float]:
        """How well each text answers a question, by its best window. Scores of different models cannot be compared."""
        windows = [(place, window) for place, text in enumerate(texts) for window in self._cut(text)]
        windows.sort(key=lambda window: len(window[1]))  # what pads the shorter ones costs as much as text
        best = [float("-inf")] * len(texts)
        for start in range(0, len(windows), self._config.batch_size):
            batch = windows[start : start + self._config.batch_size]
            written = self._write(question, [window for _, window in batch])
            with self._lock, torch.inference_mode():
                scores = self._read(written.to(self._device)).float().tolist()
            for (place, _), value in zip(batch, scores, strict=True):
                best[place] = max(best[place], value)
        return best

    def _cut(self, text: str) -> list[str]:
        """The windows of a text, which overlap; itself if it has not one token."""
        read = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        places = read["offset_mapping"]
        planned = plan_windows(len(places), self._config.window_tokens, self._config.overlap_tokens)
        return [text[places[window.start][0] : places[window.stop - 1][1]] for window in planned] or [text]

    @abstractmethod
    def _write(self, question: str, windows: Sequence[str]) -> BatchEncoding:
        """What the model reads of some windows: tokens and mask, (n, tokens)."""

    @abstractmethod
    def _read(self, written: BatchEncoding) -> torch.Tensor:
        """The scores of these windows, (n,)."""


class CrossEncoder(Reranker):
    """A model that classifies pairs of texts: its one logit, or that of the second of two classes above the first's."""

    def _write(self, question: str, windows: Sequence[str]) -> BatchEncoding:
        questions = [question] * len(windows)
        return self._tokenizer(questions, list(windows), padding=True, truncation="longest_first", return_tensors="pt")

    def _read(self, written: BatchEncoding) -> torch.Tensor:
        logits = self._model(**written).logits
        return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]


class YesOrNo(Reranker):
    """A causal model that is asked whether a text answers the question: the log-odds of `yes` against `no`.

    Raises:
        ConfigError: its chat template cannot hold what it is asked.
    """

    def __init__(self, config: RerankConfig, model: Any, source: str) -> None:
        super().__init__(config, model, source)
        self._tokenizer.padding_side = "left"  # every text ends where the answer begins
        answers = [self._tokenizer.encode(word, add_special_tokens=False)[0] for word in (YES, NO)]
        self._model.set_output_embeddings(_TwoLogits(self._model.get_output_embeddings(), answers))
        try:
            self.write_prompt("", "")
        except Exception as error:  # a template is a program, which raises what it likes
            raise ConfigError(
                f"rerank.model {config.model!r}: its chat template does not take a system message and a question "
                f"({str(error)[:200]}). Name another model."
            ) from None

    def _write(self, question: str, windows: Sequence[str]) -> BatchEncoding:
        prompts = [self.write_prompt(question, window) for window in windows]
        return self._tokenizer(prompts, add_special_tokens=False, padding=True, return_tensors="pt")

    def _read(self, written: BatchEncoding) -> torch.Tensor:
        positions = (written["attention_mask"].cumsum(1) - 1).clamp(min=0)
        # The answer is what comes after the last token, so no other position needs the two logits.
        yes, no = self._model(**written, position_ids=positions, use_cache=False, logits_to_keep=1).logits[:, -1].T
        return yes - no

    def write_prompt(self, question: str, window: str) -> str:
        """What the model reads before its answer."""
        return self._tokenizer.apply_chat_template(
            disarm(write_question(question, window, self._config.instruction), self._tokenizer),
            add_generation_prompt=True,
            tokenize=False,
            enable_thinking=False,
        )


class _TwoLogits(torch.nn.Module):
    """A causal model's head for two tokens alone, in float32. What the model's family does with logits, such as to cap them, is
    left to the model.

    In 16 bits two logits of which each is 20 differ by eighths, and most pages of a ranking would be equal.
    """

    def __init__(self, head: Any, tokens: Sequence[int]) -> None:
        super().__init__()
        self.weight = head.weight[tokens].float()
        self.bias = None if head.bias is None else head.bias[tokens].float()

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(states.float(), self.weight, self.bias)


def load_reranker(config: RerankConfig) -> Reranker:
    """The reranker for a model.

    Raises:
        ConfigError: as `check_reranker`, the model's chat template cannot hold what it is asked, or it is to run on a GPU and
            this process has none.
    """
    if config.device == "gpu" and not torch.cuda.is_available():
        raise ConfigError("rerank.device gpu: this process has no GPU. Set it to cpu.")
    config, source, adapter_dir = _resolve(config)
    kind, load = _find_kind(config, source)
    try:
        model = load.from_pretrained(source, dtype=getattr(torch, config.dtype))
        if adapter_dir:
            model = PeftModel.from_pretrained(model, str(adapter_dir)).merge_and_unload()
    except (OSError, ValueError, KeyError) as error:
        raise _refuse_unreadable(config, error) from None
    return kind(config, model, source)


def check_reranker(config: RerankConfig) -> None:
    """Look at what a model says of itself, and load no weights.

    Raises:
        ConfigError: there is no such model, or it is of a kind that scores no pairs of texts, or an adapter is none that was
            trained for that, or belongs to another base model.
    """
    config, source, _ = _resolve(config)
    _find_kind(config, source)


def _resolve(config: RerankConfig) -> tuple[RerankConfig, str, Path | None]:
    """How the model is asked, the folder or name of its weights, and the adapter that goes on them, if it is one."""
    folder = Path(config.model).expanduser()
    if not (folder / ADAPTER_CONFIG_NAME).is_file():
        return config, resolve_model(config.model), None
    try:
        note = read_note(folder)
        if note is None:
            raise ConfigError(
                f"rerank.model {config.model!r}: an adapter that was not trained to rank. Train one: "
                "python jobs/finetune.py --scope reranker --finetune.method rerank"
            )
        source = resolve_model(config.base or _read_local_name(folder))
        check_adapter_fits(read_base_model(source), folder)
    except (DataError, TrainError) as error:
        raise ConfigError(f"rerank.model {config.model!r}: {error}") from None
    return config.model_copy(update={"instruction": note.instruction}), source, folder


def _read_local_name(folder: Path) -> str:
    """The base model that an adapter's folder names, on this machine or the Hugging Face Hub.

    Raises:
        ConfigError: it names one in an object store.
    """
    name = read_noted_name(folder)
    if is_uri(name):
        raise ConfigError(
            f"rerank.model {str(folder)!r}: its folder names a base model in an object store, {name[:200]!r}, which is not "
            "fetched on its word. If it is yours, say so: rerank.base with that place."
        )
    return name


def _find_kind(config: RerankConfig, source: str) -> tuple[type[Reranker], Any]:
    """The kind of a model, and the class of transformers that loads it."""
    try:
        found: Any = AutoConfig.from_pretrained(source)
        [architecture] = found.architectures or [""]
    except (OSError, ValueError, KeyError) as error:
        raise _refuse_unreadable(config, error) from None
    if architecture.endswith("ForSequenceClassification") and found.num_labels <= 2:
        return CrossEncoder, AutoModelForSequenceClassification
    if architecture.endswith("ForCausalLM"):
        return YesOrNo, AutoModelForCausalLM
    raise ConfigError(
        f"rerank.model {config.model!r}: is a {architecture or 'model of no kind'} of {found.num_labels} labels; expected a "
        "causal model, or one that classifies sequences, with one label or two, for example BAAI/bge-reranker-v2-m3."
    )


def _refuse_unreadable(config: RerankConfig, error: Exception) -> ConfigError:
    return ConfigError(f"rerank.model {config.model!r}: cannot be read as a model ({error}).")
