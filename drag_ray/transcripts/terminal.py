"""Trajectories in the terminal: a list, a line each, and whole transcripts."""

import textwrap
from collections.abc import Iterator

import polars as pl

from drag_ray.messages import to_displayable
from drag_ray.transcripts.transcript import Exchange, Transcript, name_rollout
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
