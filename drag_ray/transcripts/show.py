"""Trajectories that are asked for by a path and a selection: printed, as a list or in full, as a page with its pictures, or for a
program."""

import itertools
import json
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import polars as pl

from drag_ray.errors import DataError
from drag_ray.messages import to_displayable
from drag_ray.storage.artifacts import write_text
from drag_ray.transcripts.listing import Selection, choose, read_listing, read_trajectories
from drag_ray.transcripts.thumbnails import ThumbnailStore, open_thumbnails
from drag_ray.transcripts.transcript import Exchange, Transcript, build_transcript, name_rollout, to_page
from drag_ray.transcripts.webpage import render_page
from drag_ray.types import ActionKind, Hit

_COLORS = {"good": "32", "bad": "31", "soft": "2", "bold": "1", "query": "1;36"}
_OUTCOME_COLORS = {"found": "good", "not-found": "soft", "errors": "bad"}
_MIN_QUESTION = 20


class Terminal:
    """Writes for a terminal of `width` columns, with or without colours."""

    def __init__(self, use_color: bool, width: int) -> None:
        self._use_color = use_color
        self._width = max(40, width)

    def format_list(self, listing: pl.DataFrame, num_chosen: int) -> str:
        """A line for each row of `listing`, of `num_chosen` that there are."""
        rows = listing.to_dicts()
        ids = [to_displayable(name_rollout(row["policy"], row["id"])) for row in rows]
        id_width = max(2, *(len(name) for name in ids))
        figures = "".join(f"{name:>9}" for name in ("question", "first", "best", "gain", "turns", "tokens", "seconds"))
        heading = f"{'outcome':<10}{figures}  {'id':<{id_width}}  "
        lines = [self._paint(f"{heading}question", "bold")]
        question_width = max(_MIN_QUESTION, self._width - len(heading))
        for name, row in zip(ids, rows, strict=True):
            gain = "-" if row["gain"] is None else f"{row['gain']:+.2f}"
            figures = (
                f"{row['question_rank'] or '-':>9}{row['first_rank'] or '-':>9}{row['best_rank'] or '-':>9}{gain:>9}"
                f"{row['turns']:>9}{row['tokens']:>9,}{row['seconds']:>9.1f}"
            )
            said = row["error"] or row["question"]
            outcome = self._paint(f"{row['outcome']:<10}", _OUTCOME_COLORS[row["outcome"]])
            lines.append(f"{outcome}{figures}  {name:<{id_width}}  {_shorten(said, question_width)}")
        if num_chosen > listing.height:
            lines.append(self.format_rest(num_chosen - listing.height))
        return "\n".join(lines)

    def format_rest(self, num_left_out: int) -> str:
        """The line that tells of what the limit cut off."""
        return self._paint(f"{num_left_out:,} more; see --limit, and --html FILE to read them in a browser", "soft")

    def format_transcript(self, transcript: Transcript) -> str:
        """The whole transcript."""
        trajectory = transcript.trajectory
        evidence = ", ".join(f"{page.file}#{page.page_number}" for page in trajectory.evidence)
        origin = (transcript.name, trajectory.provenance.preset, trajectory.provenance.model, trajectory.provenance.adapter)
        lines = [
            self._paint("─" * self._width, "soft"),
            self._paint(to_displayable(trajectory.question), "bold"),
            self._paint(to_displayable(" · ".join(part for part in origin if part)), "soft"),
            f"evidence: {to_displayable(evidence) or 'none'}"
            + "".join(f"   answer: {to_displayable(text)}" for text in trajectory.answers[:3]),
            *(self._paint(text, "soft") for text in (transcript.describe_question(),) if text),
        ]
        for exchange in transcript.exchanges:
            lines += ["", *self._list_exchange(transcript, exchange)]
        lines += ["", self._format_end(transcript)]
        return "\n".join(lines)

    def _list_exchange(self, transcript: Transcript, exchange: Exchange) -> Iterator[str]:
        turn = exchange.turn
        seconds = turn.reply.generate_s + turn.ranking.search_s + turn.call.duration_s
        cost = f"{turn.reply.num_completion_tokens:,} tokens, {seconds:.1f} s"
        yield f"{self._paint(f'{turn.step}. {transcript.describe_action(turn)}', 'bold')}  {self._paint(cost, 'soft')}"
        if turn.reasoning:
            yield from self._wrap(turn.reasoning, "soft")
        if turn.action is ActionKind.SEARCH:
            yield f"   {self._paint(to_displayable(transcript.describe_query(turn)), 'query')}"
            yield from (self._format_hit(transcript, hit) for hit in exchange.shown)
            color = "good" if turn.ranking.rank_score > 0 else "soft"
            yield f"   {self._paint(exchange.describe_rank(transcript.trajectory.depth), color)}"
        elif turn.action is ActionKind.ANSWER:
            yield from self._wrap(turn.answer.text, "bold")
            for page in turn.answer.citations:
                mark = self._paint("evidence", "good") if transcript.is_evidence(page) else "no evidence"
                yield f"   cites {to_displayable(page.file)}#{page.page_number}  {mark}"
        elif turn.action is ActionKind.TOOL:
            yield from self._wrap(transcript.describe_call(turn), "query")
            if exchange.observation:
                yield from self._wrap(exchange.observation.text, "bad" if turn.call.error else "soft")
                yield from (self._paint(f"   {to_displayable(image.key)}", "soft") for image in exchange.observation.images)
        else:
            yield from self._wrap(turn.raw_text)
            if exchange.observation:
                yield from self._wrap(exchange.observation.text, "bad")
        if turn.reply.finish_reason == "length":
            yield f"   {self._paint('cut at the token limit', 'bad')}"
        if turn.error:
            yield from self._wrap(turn.error, "bad")

    def _format_hit(self, transcript: Transcript, hit: Hit) -> str:
        line = f"   {hit.rank:>3}  {to_displayable(hit.file)}#{hit.page_number}  {hit.score:.2f}"
        return f"{self._paint(line, 'good')}  {self._paint('◀ evidence', 'good')}" if transcript.is_evidence(hit) else line

    def _format_end(self, transcript: Transcript) -> str:
        trajectory = transcript.trajectory
        outcome = self._paint(transcript.describe_outcome(), _OUTCOME_COLORS[transcript.outcome])
        error = f"\n{self._paint(to_displayable(trajectory.error), 'bad')}" if trajectory.error else ""
        return f"{outcome}, ended by {trajectory.stop_reason.value}; {transcript.describe_size()}{error}"

    def _wrap(self, text: str, color: str = "") -> Iterator[str]:
        for paragraph in to_displayable(text).splitlines():
            for line in textwrap.wrap(paragraph, self._width - 3) or [""]:
                yield f"   {self._paint(line, color)}"

    def _paint(self, text: str, color: str) -> str:
        return f"\033[{_COLORS[color]}m{text}\033[0m" if self._use_color and color and text else text


def _shorten(text: str, width: int) -> str:
    line = to_displayable(" ".join(text.split()))
    return line if len(line) <= width else line[: width - 1] + "…"


MAX_BYTES = 20_000_000
# No text of a model can hold this: its brackets are escaped.
_NO_PICTURES = '<script type="application/json" id="pictures">{}</script>'


def write_transcripts(
    path: Path, title: str, transcripts: Sequence[Transcript], chosen: pl.DataFrame, thumbnails: ThumbnailStore
) -> None:
    """Write the page, at most `MAX_BYTES` long: where pictures do not fit, the last transcripts go without. Raises DataError
    where the text alone is longer than that, and ArtifactError where the file cannot be written."""
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
    """Print the list of the selected trajectories, or each of them in full. Raises DataError where there are no trajectories
    below `path`, or none is selected."""
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
    """Write the selected transcripts as a page for the browser, and return how many. Raises DataError where there are no
    trajectories below `path`, none is selected, or they are too many for a page, and ArtifactError where the page cannot be
    written."""
    if target.is_dir():
        raise DataError(f"{target}: is a folder. Name the file to write, as {target / 'transcripts.html'}.")
    chosen = choose(read_listing(path), selection)
    shown = list(build_transcripts(chosen.head(selection.limit)))
    title = f"Transcripts of {path.resolve().parent.name}/{path.resolve().name}"
    write_transcripts(target, title, shown, chosen, open_thumbnails(path))
    return len(shown)


def read_transcripts(path: Path, selection: Selection) -> list[Transcript]:
    """The selected transcripts. Raises DataError where there are no trajectories below `path`, or none is selected."""
    return list(build_transcripts(choose(read_listing(path), selection).head(selection.limit), open_thumbnails(path)))


def build_transcripts(chosen: pl.DataFrame, thumbnails: ThumbnailStore | None = None) -> Iterator[Transcript]:
    """The transcripts of rows of a listing, one after the other. `thumbnails` is as of `build_transcript`."""
    return (build_transcript(policy, trajectory, thumbnails) for policy, trajectory in read_trajectories(chosen))
