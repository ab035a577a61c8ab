"""Notes of a simulated cluster's engines and driver, which they write to a folder while they work, and the figures made of
them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ENGINES_DIR_NAME = "engines"
"""`PID.made` holds when an engine was there, `PID.replies` a line `began_at ended_at is_last` for each reply (is_last: the last
of its rollout)"""
LOOKS_NAME = "looks.jsonl"
"""what the driver sees every moment: `{"at", "call_s", "nodes", "store_bytes"}`"""
LET_NAME = "let"
"""an empty file; before it is there engines wait and write nothing"""
BEGUN_NAME, COLLECTED_NAME = "begun.json", "collected.json"
"""written when the collection begins, and when it has ended"""


class Notes:
    """The notes in a folder; whoever writes them may still be at it. All moments are seconds since the epoch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The record that a part writes at its end; None before."""
        path = self._folder / name
        return json.loads(path.read_text()) if path.exists() else None

    def read_made(self) -> list[float]:
        """Moments at which engines were there, in the order of time; those that have ended since among them."""
        texts = [path.read_text() for path in (self._folder / ENGINES_DIR_NAME).glob("*.made")]
        return sorted(float(text) for text in texts if text)

    def let_write(self) -> None:
        """Let the engines begin."""
        (self._folder / LET_NAME).touch()

    def describe_replies(self, begin: float, end: float, num_slots: int) -> dict[str, Any]:
        """Rollouts a second that ended between two moments, and the share of the engines' slots that were taken then."""
        replies = [
            (float(began_at), float(ended_at), int(is_last))
            for path in (self._folder / ENGINES_DIR_NAME).glob("*.replies")
            for began_at, ended_at, is_last in (line.split() for line in _read_lines(path))
        ]
        taken_s = sum(max(0.0, min(ended_at, end) - max(began_at, begin)) for began_at, ended_at, _ in replies)
        rollouts = sum(is_last for _, ended_at, is_last in replies if begin <= ended_at < end)
        return {
            "seconds": round(end - begin, 1),
            "rollouts": rollouts,
            "rollouts_per_s": round(rollouts / (end - begin), 1),
            "slots_taken": round(taken_s / (num_slots * (end - begin)), 4),
        }

    def describe_looks(self, begin: float, end: float) -> dict[str, Any]:
        """Calls of the driver to another node's actor, and what the object store held, between two moments."""
        looks = [look for look in self._read_looks() if begin <= look["at"] < end]
        return {
            "call_s": describe([look["call_s"] for look in looks], 4),
            "object_store_peak_mb": round(max((look["store_bytes"] for look in looks), default=0) / 1e6, 1),
        }

    def find_notice(self, lost_at: float) -> float | None:
        """Seconds after which the driver saw fewer nodes than at the moment when one was lost; None while it has not."""
        looks = self._read_looks()
        before = [look["nodes"] for look in looks if look["at"] < lost_at]
        seen = [look["at"] for look in looks if look["at"] >= lost_at and look["nodes"] < before[-1]]
        return round(seen[0] - lost_at, 2) if seen else None

    def read_nodes(self) -> list[tuple[float, int]]:
        """Moments, with the nodes that the driver saw alive then, the head among them."""
        return [(look["at"], look["nodes"]) for look in self._read_looks()]

    def _read_looks(self) -> list[dict[str, Any]]:
        path = self._folder / LOOKS_NAME
        return [json.loads(line) for line in _read_lines(path)] if path.exists() else []


def describe(values: Sequence[float], digits: int = 1) -> dict[str, float]:
    """Their number, median, 99th percentile and maximum."""
    if not values:
        return {"num": 0}
    median, late, most = np.quantile(values, (0.5, 0.99, 1)).round(digits).tolist()
    return {"num": len(values), "p50": median, "p99": late, "max": most}


def _read_lines(path: Path) -> list[str]:
    """Whole lines: the last may still be on its way."""
    return path.read_text().split("\n")[:-1]
