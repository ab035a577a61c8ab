"""What a reranker reads of a question and texts: their windows with the question, as tokens."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoTokenizer
from transformers.tokenization_utils_base import BatchEncoding

from drag_ray.engine.encoders.reranker_files import RerankerFiles, refuse_unreadable
from drag_ray.engine.encoders.windows import plan_windows
from drag_ray.engine.models.relevance import find_answers, write_prompt
from drag_ray.errors import ConfigError

Tokens = dict[str, list[int]]
"""Of one pair, as its model takes them: `input_ids`, and `token_type_ids` where it has such."""


class Pairs(NamedTuple):
    """A question with each window of some texts, and for each the text that it is of, by its place."""

    tokens: list[Tokens]
    places: list[int]


def join_pairs(written: Sequence[Pairs], num_texts: Sequence[int]) -> Pairs:
    """Those of several questions as one, whose texts are counted on.

    Args:
        written: of each question.
        num_texts: how many texts each has.
    """
    starts = accumulate(num_texts, initial=0)
    places = [start + place for start, pairs in zip(starts, written, strict=False) for place in pairs.places]
    return Pairs([tokens for pairs in written for tokens in pairs.tokens], places)


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
            tokens = self._encode(question, [window for _, window in windows]) if windows else []
        return Pairs(tokens, [place for place, _ in windows])

    def pad(self, tokens: Sequence[Tokens]) -> dict[str, torch.Tensor]:
        """Pairs as one batch, with the mask of what is padded: tensors of (n, tokens)."""
        rows = [{**one, "attention_mask": [1] * len(one["input_ids"])} for one in tokens]
        fill = {"input_ids": self.tokenizer.pad_token_id, "token_type_ids": self.tokenizer.pad_token_type_id, "attention_mask": 0}
        side = self.tokenizer.padding_side
        return {
            name: pad_sequence([torch.tensor(row[name]) for row in rows], True, fill[name], side)  # of the batch first
            for name in rows[0]
        }

    def _cut(self, text: str) -> list[str]:
        """The windows of a page's text, which overlap; itself if it has not one token. A part of a page is read at once."""
        if self.page_chars:
            return [text]
        read = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        places = read["offset_mapping"]
        planned = plan_windows(len(places), self._config.window_tokens, self._config.overlap_tokens)
        return [text[places[window.start][0] : places[window.stop - 1][1]] for window in planned] or [text]

    @abstractmethod
    def _encode(self, question: str, windows: Sequence[str]) -> list[Tokens]:
        """Of each window with the question."""


class PairOfTexts(PairWriter):
    """For a model that classifies pairs of texts."""

    def _encode(self, question: str, windows: Sequence[str]) -> list[Tokens]:
        return _split(self.tokenizer([question] * len(windows), list(windows), truncation="longest_first"))


class YesOrNoQuestion(PairWriter):
    """For a causal model that is asked whether a text answers the question.

    Attributes:
        answers: the tokens of yes and no.

    Raises:
        ConfigError: its chat template cannot hold what it is asked.
    """

    def __init__(self, files: RerankerFiles) -> None:
        super().__init__(files)
        self.tokenizer.padding_side = "left"  # every text ends where the answer begins
        self.answers = find_answers(self.tokenizer)
        try:
            self.write_prompt("", "")
        except Exception as error:  # a template is a program, which raises what it likes
            raise ConfigError(
                f"rerank.model {self._config.model!r}: its chat template does not take a system message and a question "
                f"({str(error)[:200]}). Name another model."
            ) from None

    def write_prompt(self, question: str, window: str) -> str:
        """What the model reads before its answer."""
        return write_prompt(self.tokenizer, question, window, self._config.instruction)

    def _encode(self, question: str, windows: Sequence[str]) -> list[Tokens]:
        return _split(self.tokenizer([self.write_prompt(question, window) for window in windows], add_special_tokens=False))


def load_pair_writer(files: RerankerFiles) -> PairWriter:
    """The one for a model.

    Raises:
        ConfigError: it has no tokenizer that can be read, or its chat template cannot hold what it is asked.
    """
    try:
        return (YesOrNoQuestion if files.is_causal else PairOfTexts)(files)
    except (OSError, ValueError, KeyError) as error:
        raise refuse_unreadable(files.config, error) from None


def _split(encoded: BatchEncoding) -> list[Tokens]:
    names = [name for name in encoded if name != "attention_mask"]  # `pad` makes it
    return [dict(zip(names, values, strict=True)) for values in zip(*(encoded[name] for name in names), strict=True)]
