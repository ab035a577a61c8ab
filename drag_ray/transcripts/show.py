"""Transcripts that are asked for by a path and a selection: printed, as a page with its pictures, or for a program."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from drag_ray.errors import DataError
from drag_ray.storage.artifacts import write_text
from drag_ray.transcripts.listing import Selection, choose, read_listing, read_trajectories
from drag_ray.transcripts.terminal import Terminal
from drag_ray.transcripts.thumbnails import ThumbnailStore, open_thumbnails
from drag_ray.transcripts.transcript import Transcript, build_transcript, to_page
from drag_ray.transcripts.webpage import render_page

MAX_BYTES = 20_000_000
# No text of a model can hold this: its brackets are escaped.
_NO_PICTURES = '<script type="application/json" id="pictures">{}</script>'


def write_transcripts(
    path: Path, title: str, transcripts: Sequence[Transcript], chosen: pl.DataFrame, thumbnails: ThumbnailStore
) -> None:
    """Write the page, at most `MAX_BYTES` long: where pictures do not fit, the last transcripts go without.

    Args:
        path: the file to write.
        title: what the page is about.
        transcripts: what it shows.
        chosen: the listing of all trajectories that were asked for, shown or not; the figures are of these.
        thumbnails: where the pictures are.

    Raises:
        DataError: the text alone is longer than that.
        ArtifactError: the file cannot be written.
    """
    seen_from = path.resolve().parent
    pictures = thumbnails.find((page for transcript in transcripts for page in transcript.list_pages()), seen_from)
    shown = thumbnails.locate((key for transcript in transcripts for key in transcript.list_images()), seen_from)
    page = render_page(
        "transcripts/page.html.j2",
        title=title,
        transcripts=transcripts,
        figures=list_figures(chosen),
        num_chosen=chosen.height,
        pictures=pictures | shown,
        to_page=to_page,
    )
    bytes_left = MAX_BYTES - len(page.encode())
    if bytes_left < 0:
        raise DataError(
            f"{path}: {len(transcripts)} transcripts are {-bytes_left / 1e6:.1f} MB more than the {MAX_BYTES / 1e6:.0f} MB of a "
            "page. Ask for fewer with --limit."
        )
    of_pages = (pictures[page].key for transcript in transcripts for page in transcript.list_pages() if page in pictures)
    of_tools = (key for transcript in transcripts for key in transcript.list_images() if key in shown)
    keys = itertools.chain(of_tools, of_pages)  # what a tool returned is nowhere else
    drawn = json.dumps(thumbnails.draw(keys, bytes_left), separators=(",", ":"))
    write_text(path, page.replace(_NO_PICTURES, _NO_PICTURES.replace("{}", drawn)))


def list_figures(chosen: pl.DataFrame) -> list[tuple[str, str, str]]:
    """Value, label and remark of each figure over the chosen trajectories.

    Those that were shown a hint say nothing of the policy, and are left out unless there are no others.
    """
    own = chosen.filter(~pl.col("hinted"))
    apart = f", {chosen.height - own.height:,} hinted apart" if 0 < own.height < chosen.height else ""
    chosen = own if own.height else chosen
    outcomes = Counter(chosen["outcome"].to_list())
    turns, searches, tokens, seconds = (float(chosen[name].sum()) for name in ("turns", "searches", "tokens", "seconds"))
    ranks = chosen["best_rank"].drop_nulls()
    num = chosen.height
    return [
        (f"{num:,}", "trajectories", f"{chosen['question_id'].n_unique():,} questions{apart}"),
        (f"{outcomes['found'] / num:.0%}", "found", f"{outcomes['found']:,} trajectories"),
        (f"{outcomes['errors']:,}", "failed", f"{outcomes['errors'] / num:.0%} of them"),
        (f"{turns / num:.1f}", "turns each", f"{searches:,.0f} searches"),
        (f"{ranks.median():.0f}" if len(ranks) else "-", "median best rank", f"{len(ranks):,} within depth"),
        (f"{tokens / max(1, turns):,.0f}", "tokens a reply", f"{seconds / num:.1f} s a trajectory"),
    ]


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
