"""Numbers that were measured stand in README.md and docs/ between markers alone, which name the files that they are from."""

import re
from functools import reduce
from pathlib import Path

import pytest
from figures import ROOT, list_files

from drag_ray.pipeline.run_config import RunConfig

_UNITS = (
    *("%", "µs", "ms", "s", "min", "h", "kB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "seconds?", "minutes?", "hours?", "points?"),
    *("tokens?", "requests?", "rollouts?", "questions?", "queries", "pages?", "rows?", "pairs?", "replies", "trajectories"),
    *("clients?", "streams?", "messages?", "packages?", "CPUs?", "cores?"),
)
_MEASURED = re.compile(
    rf"""(?<![\w.,*^=/-])(?:
        \.\d+                                                  # a score or a p-value: .592
        | \d[\d.,]*(?:\s(?:to|and)\s\d[\d.,]*)?\s?(?:CPU\s|GPU\s)?(?:{"|".join(_UNITS)})(?!\w)
        | \d{{1,3}}(?:,\d{{3}})+                               # 2,298
        | \d[\d.]*\stimes\sas
    )""",
    re.VERBOSE,
)
ALLOWED = (
    ("docs/benchmarks.md", "Intervals (95 %)", "a convention"),
    ("docs/concepts.md", "at least .8;", "a limit"),
    ("docs/concepts.md", "under 20 words", "a limit"),
    ("docs/cluster.md", "idle for 2 and 10 minutes", "a choice in the cluster files"),
    ("docs/evaluate.md", "ANLS* of at least .5", "a limit"),
    ("docs/evaluate.md", "about 7,400 questions", "an example of a report's words"),
    ("docs/evaluate.md", "80 % power", "a convention"),
    ("docs/evaluate.md", ".05 for those", "a convention"),
    ("docs/evaluate.md", "worth 1, .5 and 0", "a rule of MADQA"),
    ("docs/security.md", "more than 32 pages", "a limit"),
    ("docs/security.md", "on 100,000 pages:", "what a test is run on"),
    ("docs/serve.md", "more than 1 MiB", "a limit"),
    ("docs/serve.md", "at most 10,000 values, 1,000 items of", "a limit"),
    ("docs/serve.md", "64 KiB apart from its texts, 1 MiB if its prompt", "limits"),
    ("docs/serve.md", "1 GB of all requests", "a limit"),
    ("docs/serve.md", "most 20 MiB and 50 million pixels", "limits"),
    ("docs/serve.md", "more than 4 KiB with 413", "a limit"),
    ("docs/serve.md", "50 marks of a search, 1,000 of a client and 50,000 of all", "limits"),
    ("docs/serve.md", "at most 256 MiB", "a limit"),
    ("docs/tools.md", "1,000,000 bytes", "a limit"),
    ("docs/tools.md", "4,000,000 pixels", "a limit"),
    ("docs/tools.md", "ANLS* of at least .5", "a limit"),
    ("docs/tools.md", "worth 1, .5 and 0", "what verdicts are worth"),
    ("docs/tools.md", "(.8 accuracy + .2 quality)", "a rule of OpenSearch-VL"),
    ("docs/train.md", "fewer than about 350 questions", "advice; rankers_few.json is behind it"),
    ("docs/train.md", "from about 350 questions on", "advice; rankers_few.json is behind it"),
    ("docs/train.md", "4 questions for the reranker", "a choice in the recipe"),
    ("docs/train.md", "1,200 tokens", "follows from the size of the picture"),
    ("docs/train.md", "no more than .02 of the recall", "a limit"),
    ("docs/train/rankers.md", "about 350 questions", "advice; rankers_few.json is behind it"),
)
"""File, phrase, and what it is in place of a figure."""


def take_out_figures(text: str) -> str:
    """A text without its figures, its code and the targets of its links, in one line."""
    figures, fenced, indented = r"<!-- (?:figures|measured): .*?<!-- end -->", r"^```.*?^```", r"(?<=\n\n)(?: {4}.*\n)+"
    text = re.sub(rf"{figures}|{fenced}", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(indented, "", text))
    return " ".join(re.sub(r"`[^`]*`", "`...`", text).split())


def list_measured(text: str) -> list[str]:
    """The numbers of a text that look as if they had been measured, with the words around them."""
    text = take_out_figures(text)
    return [text[max(0, found.start() - 30) : found.end() + 30] for found in _MEASURED.finditer(text)]


@pytest.mark.parametrize("path", list_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_measured_numbers_stand_between_markers(path: Path) -> None:
    text = take_out_figures(path.read_text(encoding="utf-8"))
    for file, phrase, _ in ALLOWED:
        if file == str(path.relative_to(ROOT)):
            assert phrase in text, "no longer said: take it out of ALLOWED"
            text = text.replace(phrase, "")
    assert not list_measured(text), (
        "Write a table by a function of benchmarks/figure_*.py, or a sentence between `<!-- measured: RESULT@00000000 -->` and "
        "`<!-- end -->` (then python benchmarks/figures.py --accept), or say it without the number. "
        "A limit, a choice or an example goes into ALLOWED."
    )


@pytest.mark.parametrize(
    "said",
    [
        *("56.8 % of the questions", "took 7 ms a question", "(64 s)", "of 18 MiB", "120 µs of CPU", "5.4 kB", "9 CPU seconds"),
        *("1.4 times as fast as one", "on 10,932 of them", "300 requests at once", "an MRR of .592", "6 to 9 s after", "at 20 %"),
    ],
)
def test_a_measured_number_is_seen(said: str) -> None:
    assert list_measured(said)
    assert not list_measured(f"<!-- figures: any -->\n\n{said}\n\n<!-- end -->\n")
    assert not list_measured(f"<!-- measured: any@00000000 -->\n\n{said}\n\n<!-- end -->\n")
    assert not list_measured(f"see\n\n    {said}\n\nand `{said}`")


@pytest.mark.parametrize(
    "said", ["Python 3.11", "Hit@10", "SmolLM2-135M", "section 4.1", "the first of 3", "2 to 8 degrees", "H200"]
)
def test_names_and_versions_are_not_taken_for_measured(said: str) -> None:
    assert not list_measured(said)


@pytest.mark.parametrize("path", list_files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_defaults_that_are_told_are_those_of_the_options(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`(?:\s\w+)?\s\((\d[\d,.]*)\)", text)
    for section, rows in re.findall(r"^\| option of `([a-z_.]+)` \| default \|.*\n((?:\|.*\n)+)", text, re.MULTILINE):
        found += [(f"{section}.{name}", told) for name, told in re.findall(r"^\| `(\w+)` \| (\d+) \|", rows, re.MULTILINE)]
    for option, told in found:
        assert reduce(getattr, option.split("."), RunConfig()) == float(told.replace(",", "")), option
