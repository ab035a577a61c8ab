"""Transcripts that are asked for by a path and a selection: printed, as a page, or for a program."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from drag_ray.errors import DataError
from drag_ray.transcripts.listing import Selection, choose, read_listing, read_trajectories
from drag_ray.transcripts.page import write_transcripts
from drag_ray.transcripts.terminal import Terminal
from drag_ray.transcripts.thumbnails import ThumbnailStore, open_thumbnails
from drag_ray.transcripts.transcript import Transcript, build_transcript


def print_transcripts(path: Path, selection: Selection, in_full: bool, use_color: bool, width: int) -> None:
    """Print the list of the selected trajectories, or each of them in full.

    Raises:
        DataError: there are no trajectories below `path`, or none is selected.
    """
    chosen = choose(read_listing(path), selection)
    shown = chosen.head(selection.limit)
    terminal = Terminal(use_color, width)
    if not in_full:
        print(terminal.format_list(shown, chosen.height))
        return
    for transcript in build_transcripts(shown):
        print(terminal.format_transcript(transcript))
    if chosen.height > shown.height:
        print(terminal.format_rest(chosen.height - shown.height))


def write_page(path: Path, selection: Selection, target: Path) -> int:
    """Write the selected transcripts as a page for the browser, and return how many.

    Raises:
        DataError: there are no trajectories below `path`, none is selected, or they are too many for a page.
        ArtifactError: the page cannot be written.
    """
    if target.is_dir():
        raise DataError(f"{target}: is a folder. Name the file to write, as {target / 'transcripts.html'}.")
    chosen = choose(read_listing(path), selection)
    shown = list(build_transcripts(chosen.head(selection.limit)))
    title = f"Transcripts of {path.resolve().parent.name}/{path.resolve().name}"
    write_transcripts(target, title, shown, chosen, open_thumbnails(path))
    return len(shown)


def read_transcripts(path: Path, selection: Selection) -> list[Transcript]:
    """The selected transcripts.

    Raises:
        DataError: there are no trajectories below `path`, or none is selected.
    """
    return list(build_transcripts(choose(read_listing(path), selection).head(selection.limit), open_thumbnails(path)))


def build_transcripts(chosen: pl.DataFrame, thumbnails: ThumbnailStore | None = None) -> Iterator[Transcript]:
    """The transcripts of rows of a listing, one after the other. `thumbnails` is as of `build_transcript`."""
    return (build_transcript(policy, trajectory, thumbnails) for policy, trajectory in read_trajectories(chosen))
