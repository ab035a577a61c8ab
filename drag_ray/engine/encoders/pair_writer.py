"""Input of a reranker: the question with each window of some texts, as tokens or as text."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from transformers import AutoTokenizer

from drag_ray.engine.encoders.reranker_files import RerankerFiles, refuse_unreadable
from drag_ray.engine.models.relevance import find_answers, write_prompt
from drag_ray.engine.models.tokens import cut_windows
from drag_ray.errors import ConfigError

WrittenPair = list[int] | list[str]
"""As its model takes it: the tokens of a prompt, or the question and the window for a cross-encoder, which reads texts."""


class Pairs(NamedTuple):
    """A question with each window of so many texts, and for each the text that it is of, by its place."""

    question: str
    written: list[WrittenPair]
    places: list[int]
    num_texts: int


class PairWriter(ABC):
    """The tokenizer of a reranker. Safe to share between threads. `load_pair_writer` makes the one for a model.

    Attributes:
        page_chars: characters of a page that it is to be given; 0 for all.

    Args:
        files: of the model.
    """

    def __init__(self, files: RerankerFiles) -> None:
        self._config = files.config
        self.page_chars = files.page_chars
        self.tokenizer: Any = AutoTokenizer.from_pretrained(files.source)
        self.tokenizer.pad_token = self.tokenizer.pad_token or self.tokenizer.eos_token
        self._lock = threading.Lock()  # the tokenizer keeps how it was last asked to cut

    def write(self, question: str, texts: Sequence[str]) -> Pairs:
        """Each text's windows with the question. A text is as good as its best one."""
        with self._lock:
            windows = [(place, window) for place, text in enumerate(texts) for window in self._cut(text)]
            written = self._encode(question, [window for _, window in windows]) if windows else []
        return Pairs(question, written, [place for place, _ in windows], len(texts))

    def _cut(self, text: str) -> list[str]:
        """The windows of a page's text, which overlap; itself if it has not one token. A part of a page is read at once."""
        if self.page_chars:
            return [text]
        return cut_windows(self.tokenizer, text, self._config.window_tokens, self._config.window_tokens // 6) or [text]

    @abstractmethod
    def _encode(self, question: str, windows: Sequence[str]) -> list[WrittenPair]:
        """Each window with the question."""


class PairOfTexts(PairWriter):
    """Pair writer of a cross-encoder: texts."""

    def _encode(self, question: str, windows: Sequence[str]) -> list[WrittenPair]:
        return [[question, window] for window in windows]


class YesOrNoQuestion(PairWriter):
    """Pair writer of a causal model asked if a text answers the question. Raises ConfigError where its chat template cannot hold
    what it is asked. `answers`: the tokens of yes and no."""

    def __init__(self, files: RerankerFiles) -> None:
        super().__init__(files)
        self.tokenizer.padding_side = "left"  # every text ends where the answer begins
        self.answers = find_answers(self.tokenizer)
        try:
            self.write_prompt("", "")
        except Exception as error:  # a template is a program, which raises what it likes
            raise ConfigError(
                f"{self._config.section}.model {self._config.model!r}: its chat template does not take a system message and a "
                f"question ({str(error)[:200]}). Name another model."
            ) from None

    def write_prompt(self, question: str, window: str) -> str:
        """The prompt before the model's answer."""
        return write_prompt(self.tokenizer, question, window, self._config.instruction)

    def pad(self, prompts: Sequence[list[int]]) -> dict[str, torch.Tensor]:
        """Prompts as one batch, with the mask of what is padded: tensors of (n, tokens)."""
        return dict(self.tokenizer.pad({"input_ids": list(prompts)}, return_tensors="pt", verbose=False))

    def _encode(self, question: str, windows: Sequence[str]) -> list[WrittenPair]:
        return self.tokenizer([self.write_prompt(question, window) for window in windows], add_special_tokens=False)["input_ids"]


def load_pair_writer(files: RerankerFiles) -> PairWriter:
    """Load a pair writer. Raises ConfigError where it has no tokenizer that can be read, or its chat template cannot hold what it
    is asked."""
    try:
        return (YesOrNoQuestion if files.is_causal else PairOfTexts)(files)
    except (OSError, ValueError, KeyError) as error:
        raise refuse_unreadable(files.config, error) from None
