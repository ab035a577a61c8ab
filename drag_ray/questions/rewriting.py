"""Rewriting of questions, so that a name in them gives way to the picture of what it names, or to a description of it.

Both follow OpenSearch-VL (https://github.com/shawn0728/OpenSearch-VL): the image is of the start of a path, never of its answer,
and the answer stays the same and the only one.
"""

import json
import re
from collections.abc import Sequence
from itertools import product, starmap
from typing import NamedTuple

from drag_ray.agent.keywords import STOP_WORDS
from drag_ray.agent.shown_images import Content, list_parts, text_part
from drag_ray.corpus.near_duplicates import list_words
from drag_ray.engine.generate import Message
from drag_ray.questions.config import RewritingName
from drag_ray.questions.links import list_names
from drag_ray.questions.pages import PageText
from drag_ray.questions.prompts import build_form, read_texts, show_below
from drag_ray.search.analyzer import CJK

_HOW: dict[RewritingName, str] = {
    "anchored": "The question is asked with an image of the first page. Replace the name of what that page is about by its kind "
    'and the words "shown in the image", in the language of the question.',
    "fuzzy": "Replace one name in it by a description, from what the pages say of what is named, that fits nothing else and is "
    "without the name.",
}
_SHOWN_PAGE = "The Kestrel carries 340 litres of fuel. Its gyrocompass was made by Osprey and is looked at each spring."
_SHOWN = {
    "anchored": "When is the gyrocompass of the plane shown in the image looked at?",
    "fuzzy": "When is the gyrocompass of the plane that carries 340 litres of fuel looked at?",
}
"""An example of each, as an earlier turn: a small model that finds one in the words of the request copies it into its reply."""
_REWRITE = """

Rewrite the question below, which what stands above answers. {how} All else of the question, and its answer, stay as they are. \
Reply with nothing but one JSON object, with the name that you have replaced: {{"name": "...", "question": "..."}}

Question: {question}"""
_IMAGE = re.compile(
    r"\b(?:images?|pictures?|photos?|photographs?|bild(?:e[ns]?|er)?|abbildung|fotos?|imagen|fotografía)\b", re.IGNORECASE
)
_CAPTION = "(This page is the image that the question speaks of.)\n"
_CJK = re.compile(f"[{CJK}]")
_MIN_LETTERS = 4
REWRITING_FORM = build_form({"name": 100, "question": 500})
"""The form of a rewritten question, in which an engine of vLLM can draw the reply."""


class Rewritten(NamedTuple):
    """The name that was replaced, and the question without it, as the model wrote them."""

    name: str
    question: str


def write_rewriting_prompt(kind: RewritingName, question: str, pages: Sequence[Content]) -> list[Message]:
    """The request to rewrite a question, from what is shown of its pages, after an example."""

    def ask(pages: Sequence[Content], question: str) -> Message:
        return {"role": "user", "content": show_below(pages, _REWRITE.format(how=_HOW[kind], question=question))}

    replied = json.dumps({"name": "the Kestrel", "question": _SHOWN[kind]})
    shown = ask([_SHOWN_PAGE], "When is the gyrocompass of the Kestrel looked at?")
    return [shown, {"role": "assistant", "content": replied}, ask(pages, question)]


def read_rewritten(reply: str) -> Rewritten | None:
    """The rewritten question of a reply; None for whatever is not one object as was asked for, fenced or not."""
    texts = read_texts(reply, Rewritten._fields)
    return Rewritten(*texts) if texts else None


def is_replaced(kind: RewritingName, before: str, rewritten: Rewritten, pictured: PageText | None) -> bool:
    """True if a name stood in the question and no longer does: no word of it of four letters or more that is no stop word of
    English begins a word of the new one, or begins with one. A name without such a word is none, but in Chinese, Japanese or
    Korean, where none of its characters may be left.

    A question that is asked with an image has to speak of it, in English, German, French or Spanish, and not to name the document
    of `pictured`, the page that it shows; what became the image has to stand on that page, if this has text.
    """
    name, asked = list_words(rewritten.name), list_words(rewritten.question)
    telling = [word for word in name if len(word) >= _MIN_LETTERS and word not in STOP_WORDS] or list(filter(_CJK.match, name))
    if not telling or not _has_run(list_words(before), name) or any(starmap(_begin_alike, product(telling, asked))):
        return False
    if pictured is None:
        return True
    named = any(_has_run(asked, words) for words in list_names(pictured))
    stands_there = kind != "anchored" or not pictured.text or has_words(pictured, rewritten.name)
    return _IMAGE.search(rewritten.question) is not None and not named and stands_there


def _has_run(words: Sequence[str], run: Sequence[str]) -> bool:
    return any(list(words[place : place + len(run)]) == list(run) for place in range(len(words)))


def _begin_alike(telling: str, word: str) -> bool:
    return word.startswith(telling) or (len(word) >= _MIN_LETTERS and telling.startswith(word))


def has_words(page: PageText, text: str) -> bool:
    """True if a page has all words of a text."""
    return set(list_words(text)) <= set(list_words(page.text))


def caption_image(shown: Content) -> Content:
    """The content shown of a page, with the note that its picture is the one that the question is asked with."""
    return _CAPTION + shown if isinstance(shown, str) else [text_part(_CAPTION), *list_parts(shown)]
