"""The card of the dataset that the format stage writes: what is in it, where it came from, how to read and share it."""

from typing import Any

from drag_ray.format.config import FormatConfig
from drag_ray.format.row_format import load_format
from drag_ray.format.split import TRAIN, VALIDATION
from drag_ray.stage_runs import provenance
from drag_ray.storage.artifacts import Identity, Manifest


def write_card(config: FormatConfig, counts: dict[str, Any], identity: Identity, process: Manifest | None) -> str:
    """The text of README.md: front matter by which `datasets` finds the files, then tables."""
    rows = [
        f"| `{name}` | {load_format(name).summary} | {counts[f'{name}_{TRAIN}']:,} | {counts[f'{name}_{VALIDATION}']:,} "
        f"| {counts[f'{name}_set_aside']:,} |"
        for name in config.formats
    ]
    return "\n".join(
        [
            *_write_front_matter(config),
            "# Search trajectories as training rows",
            "",
            "Written by drag_ray from the search trajectories of a language model over a document collection.",
            "",
            "| config | rows | train | validation | set aside as leaking |",
            "|---|---|---:|---:|---:|",
            *rows,
            "",
            f"{counts['questions']:,} questions: {counts['validation_questions']:,} for validation, "
            f"{counts['withheld_questions']:,} withheld because evaluation asks the same or has their evidence.",
            "Questions that share an evidence page, a text or a group are on one side.",
            "",
            *_list_origin(config, identity, process),
            "",
            "## How to use it",
            "",
            "```python",
            f'rows = datasets.load_dataset("path/to/this/folder", "{config.formats[0]}", split="train")',
            "```",
            "",
            "To share it: `hf upload ORGANISATION/NAME path/to/this/folder --repo-type dataset`. Look first at the licence of "
            "the documents: inputs hold their text.",
            "",
        ]
    )


def _list_origin(config: FormatConfig, identity: Identity, process: Manifest | None) -> list[str]:
    filters = process.origin["config"]["process"]["filters"] if process else []
    return [
        "## Where it came from",
        "",
        f"- fingerprint {identity.fingerprint}, made from {_join(identity.inputs)}",
        f"- version {identity.version} of the stage",
        f"- drag_ray {provenance.__version__}, commit {provenance.read_commit() or 'unknown'}",
        f"- replies left out by the process stage: {', '.join(filters) or 'see its options'}",
        f"- trajectories: {_join(process.counts) if process else 'see the process stage'}",
        f"- options: {_join(config.model_dump(mode='json'))}",
    ]


def _write_front_matter(config: FormatConfig) -> list[str]:
    lines = ["---", "configs:"]
    for name in config.formats:
        lines += [f"- config_name: {name}", "  data_files:"]
        for side in (TRAIN, VALIDATION):
            lines += [f"  - split: {side}", f"    path: {name}/{side}.parquet"]
    return [*lines, "---", ""]


def _join(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())
