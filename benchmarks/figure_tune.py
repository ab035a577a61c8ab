"""Gain of a search that training questions choose, choice by choice."""

from collections.abc import Callable
from typing import Any

from figure_cells import percent, read_results, short, signed, tested_difference, to_table

_RANKINGS = {
    "all words (BM25)": "words",
    "key words": "key_words",
    "vectors": "dense",
    "both, by ranks": "hybrid",
    "what `tune` chooses": "tuned",
}
_MEASURES = ("mrr", "hit10", "recall20", "recall50")


def _fill(write: Callable[[Any], str], text: str) -> list[str]:
    return [text, *(write(one) for one in read_results("tune")["sets"])]


def write_gain(found: Any) -> str:
    """A difference with its interval, and the p-value after Holm of those that were tested."""
    value, low, high = found[:3]
    return tested_difference(found) if len(found) == 5 else f"{signed(value)} [{signed(low)}, {signed(high)}]"


def _head(text: str) -> list[str]:
    return _fill(lambda one: one["set"], text)


def write_first_stages() -> str:
    """Results of each first stage on test questions, and the lead of the one that `tune` chooses over two that nobody chose."""

    def write_measures(one: Any, name: str) -> str:
        row = one["first_stages"]["rankings"].get(name)
        return " ".join(short(row[measure]) for measure in _MEASURES) if row else ""

    def write_difference(one: Any, other: str, measure: str) -> str:
        gain = one["first_stages"]["rankings"]["tuned"].get(f"above_{other}")
        return write_gain(gain[measure]) if gain else ""

    rows = [
        _fill(lambda one: f"{one['questions']['choosing'] + one['questions']['checking']:,}", "questions to choose by"),
        _fill(lambda one: f"{one['questions']['test']:,} of {one['documents']['test']:,}", "test questions, of documents"),
        _fill(lambda one: one["first_stages"]["shown"], "`tune` chooses to show"),
        _fill(lambda one: one["first_stages"]["candidates"], "and for a reranker"),
    ]
    rows += [_fill(lambda one, name=name: write_measures(one, name), text) for text, name in _RANKINGS.items()]
    for other, text in (("words", "all words"), ("hybrid", "both, by ranks")):
        for measure, title in (("mrr", "MRR"), ("hit10", "Hit@10")):
            rows.append(_fill(lambda one, o=other, m=measure: write_difference(one, o, m), f"chosen above {text}, {title}"))
    return to_table(_head("MRR Hit@10 recall@20 @50"), rows)


def write_settings() -> str:
    """Gain of k1 and b, of a boost and of a skipped expansion, each chosen by other questions than it is measured on."""

    def write_boost(one: Any) -> str:
        best = one["boosts"]["best"]
        return next(
            (f"{name} {best[key]}x" for key, name in (("line", "first line"), ("file", "file name")) if best[key]), "none"
        )

    def write_skip(one: Any, name: str, other: str = "") -> str:
        if not one["skip"]:
            return ""
        row = one["skip"]["rankings"][name]
        return write_gain(row[f"above_{other}"]["mrr"]) if other else short(row["mrr"])

    rows = [_fill(lambda one: f"{one['bm25']['best']['k1']:g}, {one['bm25']['best']['b']:g}", "k1, b that are best to choose by")]
    rows += [_fill(lambda one: write_gain(one["bm25"]["checking"]["best"]["above_default"]["mrr"]), "their gain, checked")]
    for measure, title in (("mrr", "MRR"), ("hit10", "Hit@10"), ("recall50", "recall@50")):
        rows.append(
            _fill(lambda one, m=measure: write_gain(one["bm25"]["test"]["best"]["above_default"][m]), f"on test, {title}")
        )
    rows += [_fill(write_boost, "part to count more that is best to choose by")]
    rows += [_fill(lambda one: write_gain(one["boosts"]["checking"]["best"]["above_default"]["mrr"]), "its gain, checked")]
    rows += [_fill(lambda one: write_gain(one["boosts"]["test"]["best"]["above_default"]["mrr"]), "on test, MRR")]
    for name, text in (("question", "the question alone"), ("writer", "always"), ("unless_ahead", "unless the first page leads")):
        rows.append(_fill(lambda one, n=name: write_skip(one, n), f"what a writer adds: {text}, MRR"))
    rows += [_fill(lambda one: percent(one["skip"]["skipped"]) if one["skip"] else "", "questions without it")]
    rows += [_fill(lambda one: write_skip(one, "unless_ahead", "writer"), "that above always")]
    rows += [_fill(lambda one: write_skip(one, "unless_ahead", "question"), "that above the question")]
    rows += [_fill(lambda one: write_skip(one, "half", "writer"), "without it for the half that leads most, above always")]
    return to_table(_head("MRR"), rows)


def write_depth() -> str:
    """The shares of the test questions with evidence among the first pages."""

    def write_shares(one: Any, name: str) -> str:
        return " ".join(short(share) for _, share in one["first_stages"]["depth"].get(name, {}).values())

    names = {"words": "all words", "dense": "vectors", "union": "both in turn"}
    return to_table(
        _head("evidence in the first 10, 20, 50, 100"),
        [_fill(lambda one, n=name: write_shares(one, n), text) for name, text in names.items()],
    )
