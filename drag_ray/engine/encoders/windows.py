"""The windows that a long text is cut into, by a model's own tokens."""

from typing import Any


def cut_windows(tokenizer: Any, text: str, size: int, overlap: int) -> list[str]:
    """The parts of a text that `plan_windows` plans; none of a text without a token.

    Args:
        tokenizer: a fast one of transformers, which tells where in a text its tokens are.
    """
    places = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    return [text[places[window.start][0] : places[window.stop - 1][1]] for window in plan_windows(len(places), size, overlap)]


def plan_windows(num_tokens: int, size: int, overlap: int) -> list[range]:
    """Windows of `size` tokens over a text of `num_tokens`, each but the first with the last `overlap` tokens before it.

    The last one ends with the text and may be shorter; no window is within another.
    """
    starts = range(0, max(num_tokens - overlap, 1), size - overlap) if num_tokens else ()
    return [range(start, min(start + size, num_tokens)) for start in starts]
