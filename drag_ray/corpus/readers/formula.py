"""Formulas of Word (OMML) and of HTML (MathML) as a line of text, and raised and lowered characters as Unicode has them."""

from collections.abc import Callable
from typing import Any

_PLAIN = "0123456789+-=()n"
_RAISED = str.maketrans(_PLAIN + "i\u2212", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ⁻")
_LOWERED = str.maketrans(_PLAIN + "\u2212", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₙ₋")
_WITHOUT_TEXT = {"annotation", "annotation-xml", "rPr", "ctrlPr", "mphantom", "none", "mprescripts"}
_MATRIX_ROWS, _MATRIX_CELLS = {"mtr", "mlabeledtr", "mr"}, {"mtd"}


def raise_text(text: str) -> str:
    """Raised text: `10` with a raised 6 must not become 106, so digits and signs become raised characters.

    Other text (st of 1st, a mark of a footnote) stays as it is.
    """
    return _shift(text, _RAISED)


def lower_text(text: str) -> str:
    """Lowered text, as the 2 of H₂O; text without lowered characters stays as it is."""
    return _shift(text, _LOWERED)


def _shift(text: str, table: dict[int, int]) -> str:
    shifted = text.translate(table)
    return shifted if all(ord(char) in table or char.isspace() for char in text) else text


def write_formula(element: Any) -> str:
    """A formula in one line: fractions as (a + b)/c, powers as x² or e^(x + 1), roots as √(x); symbols as they are.

    Args:
        element: an `m:oMath` of Word or a `math` of HTML, whose nesting its parser has bounded.
    """
    return " ".join(_write(element).split())


def _write(element: Any) -> str:
    if not isinstance(element.tag, str):  # a comment
        return ""
    name = element.tag.rpartition("}")[2]
    if name in _WITHOUT_TEXT:
        return ""
    if writer := _WRITERS.get(name):
        return writer([child for child in element if isinstance(child.tag, str) and not child.tag.endswith("Pr")])
    if name in ("d", "mfenced", "nary"):
        return _write_with_signs(name, element)
    inner = _write_text(element.text, len(element)) + "".join(_write(child) + _write_text(child.tail, 1) for child in element)
    if name in _MATRIX_ROWS:
        return f"{inner}; "
    return f"{inner} " if name in _MATRIX_CELLS else inner


def _write_text(text: str | None, num_children: int) -> str:
    """Text beside elements; blanks alone between them are the file's layout and left out."""
    return "" if text is None or (num_children and not text.strip()) else text


def _group(text: str) -> str:
    """Put text of more than one word or number in brackets."""
    text = text.strip()
    return text if text.replace(".", "", 1).isalnum() or (text[:1] == "(" and text[-1:] == ")") else f"({text})"


def _power(base: str, exponent: str) -> str:
    raised = raise_text(exponent.strip())
    return base + (raised if raised != exponent.strip() or not raised else f"^{_group(exponent)}")


def _index(base: str, index: str) -> str:
    lowered = lower_text(index.strip())
    return base + (lowered if lowered != index.strip() or not lowered else f"_{_group(index)}")


def _take(write: Callable[..., str], number: int) -> Callable[[list[Any]], str]:
    """Adapt `write` to a list of parts: the first `number` of them, missing ones empty."""
    return lambda parts: write(*([_write(part) for part in parts[:number]] + [""] * (number - len(parts))))


_WRITERS: dict[str, Callable[[list[Any]], str]] = {
    **dict.fromkeys(("f", "mfrac"), _take(lambda above, below: f"{_group(above)}/{_group(below)}", 2)),
    **dict.fromkeys(("sSup", "msup", "limUpp", "mover"), _take(_power, 2)),
    **dict.fromkeys(("sSub", "msub", "limLow", "munder"), _take(_index, 2)),
    **dict.fromkeys(
        ("sSubSup", "msubsup", "munderover"), _take(lambda base, below, above: _power(_index(base, below), above), 3)
    ),
    "rad": _take(lambda degree, inner: f"{raise_text(degree)}√{_group(inner)}", 2),
    "mroot": _take(lambda inner, degree: f"{raise_text(degree)}√{_group(inner)}", 2),
    "msqrt": lambda parts: f"√{_group(''.join(map(_write, parts)))}",
    "func": _take(lambda name, inner: f"{name} {inner}", 2),
}


def _write_with_signs(name: str, element: Any) -> str:
    """Brackets and sums, whose signs are attributes: of Word's in their properties."""
    signs: dict[str, str] = {}
    for properties in (child for child in element if str(child.tag).endswith(f"{name}Pr")):
        signs |= {str(item.tag).rpartition("}")[2]: next(iter(item.attrib.values()), "") for item in properties}
    parts = [_write(child) for child in element if isinstance(child.tag, str) and not child.tag.endswith("Pr")]
    if name == "nary":
        below, above, inner = (*parts, "", "", "")[:3]
        return f"{_power(_index(signs.get('chr', '∫'), below), above)} {inner}"
    opening = element.get("open", signs.get("begChr", "("))
    closing = element.get("close", signs.get("endChr", ")"))
    return f"{opening}{(signs.get('sepChr', '|') if name == 'd' else ', ').join(parts)}{closing}"
