"""A conversation -> token ids and labels: the loss falls on the part of each learned reply that the mask lets through.

A prompt and the reply to it are tokenized apart, as they are when the model serves: it is given the
tokens of the prompt and adds its own.  So what is learned is a sequence that it can be asked to write.
What the labels learn is decoded once more and compared with the text that was meant.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal, TypedDict

from jinja2 import TemplateError

from drag_ray.engine.conversation import Conversation
from drag_ray.errors import DataError, TrainError

_OF_OTHERS = ("user", "tool")


def disarm(messages: Sequence[Mapping[str, Any]], tokenizer: Any) -> list[dict[str, Any]]:
    """The messages, with a blank after the first letter of each control token in the texts of pages, questions and tools: the
    model reads them as words.

    A chat template makes one text of a conversation, in which `<|im_end|>` ends a turn and `<|image_pad|>` stands for an image,
    whoever has written it. A page, a question or what a tool returns could end its turn and go on as somebody else, or claim an
    image that is not there. What is trained on is read in the same way.
    """
    pattern = _find_control_tokens(tokenizer)
    return [
        {**message, "content": _disarm(message["content"], pattern)} if pattern and message["role"] in _OF_OTHERS else {**message}
        for message in messages
    ]


def _disarm(content: Any, pattern: re.Pattern[str]) -> Any:
    if isinstance(content, str):
        return pattern.sub(lambda found: f"{found[0][0]} {found[0][1:]}", content)
    return [{**part, "text": _disarm(part["text"], pattern)} if part["type"] == "text" else part for part in content]


@lru_cache(maxsize=16)
def _find_control_tokens(tokenizer: Any) -> re.Pattern[str] | None:
    """Pattern of a tokenizer's control tokens, longest first; None without any."""
    added = {token.content for token in tokenizer.added_tokens_decoder.values() if token.special}
    names = sorted((name for name in {*added, *tokenizer.all_special_tokens} if len(name) > 1), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, names))) if names else None


Mask = Literal["none", "assistant", "search_think", "search_only"]
Span = tuple[int, int]
"""First character and the one after the last."""

_THINK = re.compile(r"<think>.*?</think>", re.DOTALL)
_SEARCH = re.compile(r"<search>.*?</search>", re.DOTALL)
_CALLS = (
    re.compile(r"<tool_call>.*?(?:</tool_call>|\Z)", re.DOTALL),
    re.compile(r"```.*?(?:```|\Z)", re.DOTALL),
    re.compile(r"(?:\A|(?<=</think>))\s*\{.*", re.DOTALL),
)


def find_spans(reply: str, mask: Mask, answer_tool: str = "") -> list[Span]:
    """The parts of a reply that `mask` lets through, in order; none if the reply has no such part. The masks are those of the
    agentic retrieval fine-tuning (DRAG) reference.

    `search_only` is the search with its tags or its function call, and the call of any other function but the one that answers,
    in whichever form it was written; `search_think` the reasoning too; `assistant` and `none` are all of the reply (`none` also
    learns what is not a reply, which is for the tokenizer to do). `answer_tool` is the name of the function that answers, empty
    where actions are written in tags.
    """
    if mask in ("none", "assistant"):
        return [(0, len(reply))] if reply else []
    searches = [found.span() for found in _SEARCH.finditer(reply)] or (_find_calls(reply, answer_tool) if answer_tool else [])
    if mask == "search_only" or not searches:
        return searches
    return sorted([*searches, *(found.span() for found in _THINK.finditer(reply))])


def _find_calls(reply: str, answer_tool: str) -> list[Span]:
    """The calls of functions, but for the one that answers: with their tags, otherwise in fences, otherwise bare."""
    answers = re.compile(rf'"name"\s*:\s*"{re.escape(answer_tool)}"')
    for form in _CALLS:
        found = [match for match in form.finditer(reply) if '"name"' in match[0]]
        if found:
            return [match.span() for match in found if not answers.search(match[0])]
    return []


IGNORED_LABEL = -100
"""The label that PyTorch's cross-entropy leaves out."""


class LabelledTokens(TypedDict):
    """The tokens of a conversation, and for each of them itself, or `IGNORED_LABEL` where it is not learned."""

    input_ids: list[int]
    labels: list[int]


def tokenize_conversation(
    conversation: Conversation, tokenizer: Any, mask: Mask = "assistant", answer_tool: str = ""
) -> LabelledTokens:
    """Token ids up to the last learned reply, and labels that are -100 outside of what `mask` lets through.

    With `assistant` the labels of a reply run from the token after the generation prompt to the end-of-turn token, which the
    model has to write as well; with `none` all tokens are learned, the prompt's too; the others are `find_spans`', which is told
    the name of the function that answers. Raises DataError where a learned reply has nothing that the mask lets through, and
    TrainError where the chat template does not extend a conversation by appending to it, rewrites a reply, or ends no turn.
    """
    input_ids: list[int] = []
    labels: list[int] = []
    rendered = ""
    for place in conversation.trained:
        prompt = _render(conversation, place, tokenizer, with_generation_prompt=True)
        reply = _render(conversation, place + 1, tokenizer, with_generation_prompt=False)
        prompt_ids = _tokenize(_extension(rendered, prompt, place), tokenizer)
        reply_ids, reply_labels = _label_reply(
            _extension(prompt, reply, place), conversation.messages[place]["content"], tokenizer, mask, answer_tool
        )
        input_ids += prompt_ids + reply_ids
        labels += (prompt_ids if mask == "none" else [IGNORED_LABEL] * len(prompt_ids)) + reply_labels
        rendered = reply
    return {"input_ids": input_ids, "labels": labels}


def _label_reply(text: str, content: str, tokenizer: Any, mask: Mask, answer_tool: str) -> tuple[list[int], list[int]]:
    """Token ids and labels of `text`, a reply as the chat template renders its `content`."""
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, offsets = encoded["input_ids"], encoded["offset_mapping"]
    if mask == "none":
        return ids, ids
    if mask == "assistant":
        spans = [(0, offsets[_count_to_end_of_turn(ids, tokenizer) - 1][1])]
    else:
        start = text.find(content)
        if start < 0:
            raise TrainError(
                f"the chat template does not render a reply word for word ({content[:80]!r} became {text[:80]!r}), so the mask "
                f"{mask!r} cannot be placed. Use finetune.sft.mask assistant, or a model whose template keeps replies as they "
                "are."
            )
        spans = [(start + first, start + last) for first, last in find_spans(content, mask, answer_tool)]
        if not spans:
            raise DataError(
                f"a reply has nothing for the mask {mask!r} to learn: {content[:80]!r}. Use finetune.sft.mask assistant."
            )
    labels = [
        token if any(first < end and start < last for first, last in spans) else IGNORED_LABEL
        for token, (start, end) in zip(ids, offsets, strict=True)
    ]
    _check_labels(labels, offsets, text, spans, tokenizer)
    return ids, labels


def _check_labels(labels: Sequence[int], offsets: Sequence[Span], text: str, spans: Sequence[Span], tokenizer: Any) -> None:
    """Decode each run of learned tokens and compare it with its piece of `text`, and the pieces with `spans`.

    A token may begin before a span or end after it (a tag's bracket can share its token with the bracket before it), so a run
    may be wider than what was meant, by less than a token on each side.
    """
    learned = [place for place, label in enumerate(labels) if label != IGNORED_LABEL]
    runs = _cut_runs(learned)
    for first, last in runs:
        start, end = offsets[first][0], offsets[last][1]
        decoded = tokenizer.decode([labels[place] for place in range(first, last + 1)], clean_up_tokenization_spaces=False)
        covered = [span for span in spans if start <= span[0] and span[1] <= end]
        is_tight = bool(covered) and covered[0][0] < offsets[first][1] and offsets[last][0] < covered[-1][1]
        if _normalise(decoded) != _normalise(text[start:end]) or not is_tight:
            raise TrainError(
                f"the labels of a reply decode to {decoded[:80]!r}, meant was {[text[a:b][:80] for a, b in spans]}. The "
                "tokenizer's offsets cannot be trusted; use another model, and report this."
            )
    if sum(len(text[a:b]) for a, b in spans) > sum(offsets[last][1] - offsets[first][0] for first, last in runs):
        raise TrainError(f"the labels of a reply leave out a part of {text[:80]!r} that the mask lets through. Report this.")


def _normalise(text: str) -> str:
    """A text without what tokenizers may lose of it: composition of characters, spaces at its ends."""
    return unicodedata.normalize("NFC", text).strip()


def _cut_runs(places: Sequence[int]) -> list[Span]:
    """First and last of each run of consecutive places."""
    runs = (list(run) for _, run in groupby(enumerate(places), key=lambda item: item[1] - item[0]))
    return [(run[0][1], run[-1][1]) for run in runs]


def tokenize_prompt(conversation: Conversation, tokenizer: Any) -> list[int]:
    """Token ids of what the last learned reply answers, as an engine has them: of the rendered text as a whole."""
    return _tokenize(_render(conversation, conversation.trained[-1], tokenizer, with_generation_prompt=True), tokenizer)


def tokenize_step(conversation: Conversation, drawn: list[int], tokenizer: Any) -> LabelledTokens:
    """Token ids and labels of the prompt to the learned reply, and of that reply in the tokens `drawn` that it was written in.

    There is one token at least. It is not tokenized anew, and no token ends the turn that was not drawn: a reply that was cut, or
    stopped at a tag, has none. Raises DataError where they are not those of the reply.
    """
    prompt = tokenize_prompt(conversation, tokenizer)
    _check_drawn(drawn, conversation.messages[conversation.trained[-1]]["content"], tokenizer)
    return {"input_ids": prompt + drawn, "labels": [IGNORED_LABEL] * len(prompt) + drawn}


def _check_drawn(drawn: Sequence[int], reply: str, tokenizer: Any) -> None:
    """Check that these are tokens of a reply, which the ids of another model's tokenizer would not be."""
    decoded = tokenizer.decode(drawn, skip_special_tokens=True, clean_up_tokenization_spaces=False).replace("\ufffd", "")
    words, written = _normalise(decoded), _normalise(reply.replace("\ufffd", ""))
    if words not in written and written not in words:
        raise DataError(
            f"the tokens of a step decode to {words[:80]!r}, and its reply is {written[:80]!r}: another model drew them. "
            "Set engine.model to the one that collected."
        )


def _render(conversation: Conversation, stop: int, tokenizer: Any, with_generation_prompt: bool) -> str:
    try:
        return tokenizer.apply_chat_template(
            disarm(conversation.messages[:stop], tokenizer),
            tools=conversation.tools,
            tokenize=False,
            add_generation_prompt=with_generation_prompt,
        )
    except TemplateError as error:
        raise DataError(
            f"the model's chat template refuses the conversation: {error}. Change its roles, or leave it out."
        ) from None


def _extension(before: str, after: str, place: int) -> str:
    if not after.startswith(before):
        raise TrainError(
            f"the chat template renders the conversation differently once message {place} is added, so what the model "
            f"was given then cannot be told from what it wrote: {before[-80:]!r} is no longer there. "
            "Use finetune.sft.rows sft_query, which has one reply a row, or a model whose template only appends."
        )
    return after[len(before) :]


def _tokenize(text: str, tokenizer: Any) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def _count_to_end_of_turn(reply_ids: list[int], tokenizer: Any) -> int:
    """Tokens of a rendered reply up to and including its end-of-turn token, its last special token."""
    # A token that ends turns need not be one of the few that have a role of their own, like the end of a text.
    special_ids = {number for number, token in tokenizer.added_tokens_decoder.items() if token.special}
    special_ids.update(tokenizer.all_special_ids)
    for place in range(len(reply_ids) - 1, -1, -1):
        if reply_ids[place] in special_ids:
            return place + 1
    raise TrainError(
        "the chat template ends a reply without a special token, so the model would not learn to stop. "
        "Use a model with an end-of-turn token in its chat template."
    )


def cut_windows(tokenizer: Any, text: str, size: int, overlap: int) -> list[str]:
    """The parts of a text that `plan_windows` plans; none of a text without a token. `tokenizer`: a fast one of transformers,
    which tells where in a text its tokens are."""
    places = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    return [text[places[window.start][0] : places[window.stop - 1][1]] for window in plan_windows(len(places), size, overlap)]


def plan_windows(num_tokens: int, size: int, overlap: int) -> list[range]:
    """Windows of `size` tokens over a text of `num_tokens`, each but the first with the last `overlap` tokens before it.

    The last one ends with the text and may be shorter; no window is within another.
    """
    starts = range(0, max(num_tokens - overlap, 1), size - overlap) if num_tokens else ()
    return [range(start, min(start + size, num_tokens)) for start in starts]
