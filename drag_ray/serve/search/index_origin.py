"""Warnings about what was made with another index than is served."""

import logging
from collections.abc import Mapping
from pathlib import Path

from drag_ray.agent.record import AgentRecord
from drag_ray.evaluate.outcome import read_index_fingerprint
from drag_ray.search.index import read_fingerprint

_logger = logging.getLogger(__name__)


def say_other_origins(index_dir: str, records: Mapping[str, AgentRecord], evaluation: Path | None) -> None:
    """Say in the log which adapters, and whether the evaluation, were made with another index than is served.

    A policy may well find pages of another collection, and an index grows; so that is said and not refused.

    Args:
        index_dir: the search index; empty for an endpoint without one.
        records: how adapters are asked, by name.
        evaluation: whose findings are used, if any are.

    Raises:
        SearchIndexError: the index is none that can be read.
        ArtifactError, DamageError: the evaluation has not finished, or is not what was written.
    """
    if not index_dir:
        return
    served = read_fingerprint(Path(index_dir))
    made_with = {f"the adapter {name!r} was trained": record.index_fingerprint for name, record in records.items()}
    if evaluation:
        made_with[f"{evaluation} evaluated"] = read_index_fingerprint(evaluation)
    for what, fingerprint in made_with.items():
        if problem := describe_other_index(fingerprint, served):
            _logger.warning(f"{what} with {problem}")


def describe_other_index(made_with: str, served: str) -> str:
    """The warning about something made with an index; empty where it is the one that is served, or not known."""
    if not made_with or not served or made_with == served:
        return ""
    return (
        f"another index ({made_with}) than is served ({served}): other pages, another analyzer or another version of "
        "Tantivy. Its measured worth need not hold here; evaluate it with this index"
    )
