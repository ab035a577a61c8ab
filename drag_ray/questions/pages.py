"""Choice of the pages that questions are written from: those with something to ask about."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from drag_ray.corpus.near_duplicates import list_words
from drag_ray.questions.languages import UNKNOWN, tell_language
from drag_ray.search.normal_form import normalise
from drag_ray.types import Evidence

Unfit = Literal["empty", "few_words", "numbers", "boilerplate", "other_language", "instructions", "no_picture"]
"""Why a page is not asked about: no words, too few, hardly any but numbers, hardly any beside lines that many pages repeat,
another language than asked, words to a model that reads it, or no picture where that is shown."""

_NUMBERS_SHARE = 2 / 3
"""of its words, from which on a page is a table of numbers"""
_REPEATING_PAGES = 5
"""with the same line make it boilerplate"""
_DIGITS = re.compile(r"\d+")
_CELLS = re.compile(r"\||\t+| {2,}")
_NUMBERS = re.compile(r"(?:\s+[-+($€£]*\d[\d.,]*[%)]*)+$")
_MAX_NUMBERS_CHARS = 200
"""of the end of a line: from each of its numbers, a long one takes quadratic time"""
_TABLE_ROWS = 3
_TABLE_MARKS = re.compile(r"<table\b|\\begin\{tabular", re.IGNORECASE)
_TOLD = (
    r"\b(?:ignore|disregard|forget)\s+(?:\w+\s+){0,3}?"
    r"(?:the\s+above|(?:above|previous|prior|earlier|preceding|your|system)\s+(?:\w+\s+)?(?:instruction|prompt|rule|message)s?)\b",
    r"\b(?:ignorier|missacht|vergiss|vergesse)\w*\s+(?:\w+\s+){0,3}?(?:das\s+obige|alles\s+obige|(?:obig|vorherig|vorig|bisherig"
    r"|vorangegangen|früher|system|dein|ihr)\w*\s+(?:\w+\s+)?(?:anweisung|instruktion|regel|vorgabe|befehl|prompt)\w*)",
    r"\b(?:ignor|oubli|néglig)\w*\s+(?:\w+\s+){0,3}?(?:ce\s+qui\s+précède"
    r"|(?:instruction|consigne|directive|règle|ordre|message)s?\s+(?:précédent|antérieur|ci-dessus|qui\s+précèdent|du\s+système))",
    r"\b(?:ignor|olvid|descart|omit)\w*\s+(?:\w+\s+){0,3}?(?:lo\s+anterior"
    r"|(?:instrucciones|indicaciones|reglas|órdenes|mensajes)\s+(?:anteriores|previas|previos|de\s+arriba|del\s+sistema))",
    r"\b(?:ignor|esqueç|esquec|desconsider)\w*\s+(?:\w+\s+){0,3}?(?:(?:o|tudo)\s+(?:que\s+está\s+)?acima"
    r"|(?:instruções|regras|ordens|comandos|mensagens)\s+(?:anteriores|prévias|acima|do\s+sistema))",
    r"\b(?:ignor|dimentic|trascur)\w*\s+(?:\w+\s+){0,3}?(?:quanto\s+sopra"
    r"|(?:istruzioni|indicazioni|regole|comandi|messaggi)\s+(?:precedenti|anteriori|(?:di\s+|qui\s+)?sopra|del\s+sistema))",
    r"\b(?:про)?(?:игнорир|забуд)\w*\s+(?:\w+\s+){0,3}?(?:предыдущ|прежн|выше|систем)\w*\s+(?:\w+\s+)?"
    r"(?:инструкц|указан|правил|команд|сообщен)\w*",
    r"(?:忽略|无视|無視|忘记|忘記).{0,6}?(?:上述|以上|上面|之前|先前|前面|系统|系統).{0,6}?(?:指令|指示|说明|說明|提示|规则|規則|要求|命令)",
    r"(?:以前|上記|前述|上|これまで|システム)の.{0,6}?(?:指示|命令|指令|ルール|プロンプト).{0,6}?(?:無視|忘れ)",
)
"""Ways to tell a model to ignore what it was told: English, German, French, Spanish, Portuguese, Italian, Russian, Chinese and
Japanese. Who wants to say it otherwise can: what a draft may be does not depend on it (docs/security.md)."""
_INSTRUCTIONS = re.compile("|".join(_TOLD), re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PageText:
    """A page, its text, the key of its picture (empty for none), and the addresses that it links to."""

    place: Evidence
    text: str
    image: str = ""
    links: tuple[str, ...] = ()


def find_unfit(
    pages: Sequence[PageText], min_words: int, by_picture: bool = False, language: str = UNKNOWN
) -> dict[Evidence, Unfit]:
    """The pages that are not asked about, and why.

    Args:
        pages: all pages of the index: what is boilerplate shows in all of them.
        min_words: words of letters that a page needs, beside repeated lines.
        by_picture: whether pictures of pages are shown: then a page needs one, and no words.
        language: that of the pages to ask about; none for all. A page whose own is not known stays.
    """
    repeated = set[str]() if by_picture else _find_repeated_lines(pages)
    found: dict[Evidence, Unfit] = {}
    for page in pages:
        reason = _judge_picture(page) if by_picture else _judge_page(page.text, min_words, repeated)
        if not reason and language and tell_language(page.text) not in (language, UNKNOWN):
            reason = "other_language"
        if reason:
            found[page.place] = reason
    return found


def _judge_picture(page: PageText) -> Unfit | None:
    if not page.image:
        return "no_picture"
    return "instructions" if _instructs(page.text) else None


def _judge_page(text: str, min_words: int, repeated: set[str]) -> Unfit | None:
    words = list_words(text)
    letters = [word for word in words if not word.isdecimal()]
    if not words:
        return "empty"
    if len(words) < min_words:
        return "few_words"
    if len(letters) < min_words or len(words) - len(letters) >= _NUMBERS_SHARE * len(words):
        return "numbers"
    own = (line for line in text.splitlines() if _normalise_line(line) not in repeated)
    if sum(not word.isdecimal() for word in list_words("\n".join(own))) < min_words:
        return "boilerplate"
    return "instructions" if _instructs(text) else None


def _instructs(text: str) -> bool:
    return _INSTRUCTIONS.search(normalise(text)) is not None


def _find_repeated_lines(pages: Iterable[PageText]) -> set[str]:
    counts = Counter(chain.from_iterable({_normalise_line(line) for line in page.text.splitlines()} for page in pages))
    return {line for line, count in counts.items() if count >= _REPEATING_PAGES}


def _normalise_line(line: str) -> str:
    """A line as it is compared: page numbers and dates do not make it another one."""
    return _DIGITS.sub("0", " ".join(line.casefold().split()))


def has_table(text: str) -> bool:
    """True if three lines in a row have as many cells, between pipes, tabs or wide gaps or as numbers at their end; or a text has
    the mark of a table of HTML or LaTeX."""
    counts = [_count_cells(line) for line in map(str.strip, text.splitlines()) if line]
    runs = (counts[start : start + _TABLE_ROWS] for start in range(len(counts) - _TABLE_ROWS + 1))
    return any(run[0] and len(set(run)) == 1 for run in runs) or _TABLE_MARKS.search(text) is not None


def _count_cells(line: str) -> int:
    """The cells of a row of a table; 0 for a line that is none. Two cells of words take more than a gap, which stands between
    sentences too."""
    cells = [cell for cell in _CELLS.split(line.strip("|")) if cell.strip()]
    if len(cells) > 2 or (len(cells) == 2 and ("|" in line or "\t" in line)):
        return len(cells)
    numbers = _NUMBERS.search(line[-_MAX_NUMBERS_CHARS:])
    return 1 + len(numbers[0].split()) if numbers and len(numbers[0].split()) > 1 else 0
