"""Prompt that asks a causal model whether a page answers a question, and the notes beside models that finetune has trained to
find or to order pages.

The words are those that Qwen3-Reranker was trained with; other causal models understand them too.
"""

from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import Field, ValidationError

from drag_ray.config import BaseConfig
from drag_ray.engine.generate import Message
from drag_ray.engine.models.tokens import disarm
from drag_ray.errors import DataError
from drag_ray.search.config import RELEVANCE_INSTRUCTION
from drag_ray.storage.artifacts import write_json

YES, NO = "yes", "no"
NOTE_NAME, EMBEDDER_NOTE_NAME = "drag_ray_reranker.json", "drag_ray_embedder.json"
_SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can "
    f'only be "{YES}" or "{NO}".'
)


class RerankerNote(BaseConfig):
    """Settings of a trained reranker."""

    instruction: str = Field(default=RELEVANCE_INSTRUCTION, min_length=1)
    """what it was told of its task, if it is a causal model"""
    page_chars: int = Field(default=0, ge=0)
    """characters that its rows had of a page at most; 0 where nobody knows"""
    index_fingerprint: str = ""
    """of the index whose pages it was trained on; empty where nobody knows"""


class EmbedderNote(BaseConfig):
    """Settings of a trained embedding model."""

    index_fingerprint: str = ""
    """as of a reranker"""


_NAMES = {RerankerNote: NOTE_NAME, EmbedderNote: EMBEDDER_NOTE_NAME}
_Note = TypeVar("_Note", RerankerNote, EmbedderNote)


def write_question(question: str, passage: str, instruction: str = RELEVANCE_INSTRUCTION) -> list[Message]:
    """The prompt as messages, whose reply begins with `YES` or `NO`."""
    asked = f"<Instruct>: {instruction}\n<Query>: {question}\n<Document>: {passage}"
    return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": asked}]


def write_judgement(question: str, passage: str, instruction: str = RELEVANCE_INSTRUCTION, *, is_relevant: bool) -> list[Message]:
    """The prompt with the right answer."""
    return [*write_question(question, passage, instruction), {"role": "assistant", "content": YES if is_relevant else NO}]


class Answers(NamedTuple):
    """The tokens that a reply begins with; a page is the better the likelier `yes` is beside `no`."""

    yes: int
    no: int


def find_answers(tokenizer: Any) -> Answers:
    """Those of a model."""
    return Answers(*(tokenizer.encode(word, add_special_tokens=False)[0] for word in (YES, NO)))


def write_prompt(tokenizer: Any, question: str, passage: str, instruction: str) -> str:
    """The rendered prompt of a model, for ranking and for training alike; what its chat template raises is raised."""
    return tokenizer.apply_chat_template(
        disarm(write_question(question, passage, instruction), tokenizer),
        add_generation_prompt=True,
        tokenize=False,
        enable_thinking=False,
    )


def write_note(folder: Path, note: RerankerNote | EmbedderNote) -> None:
    """Note in a model's folder that it is a reranker, and how it is asked, or that it is an embedding model."""
    write_json(folder / _NAMES[type(note)], note.model_dump(mode="json"))


def read_note(folder: Path, kind: type[_Note] = RerankerNote) -> _Note | None:
    """The note of the reranker, or the embedding model, in a folder; None where nothing says that one was trained. Raises
    DataError where the note cannot be read."""
    path = folder / _NAMES[kind]
    try:
        return kind.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise DataError(
            f"{path}: not the file that finetune writes into a model's folder ({error}). Run finetune again."
        ) from None
