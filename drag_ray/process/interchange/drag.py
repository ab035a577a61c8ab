"""Trajectories in the file format of the agentic retrieval fine-tuning (DRAG) reference: one JSON object a line.

    {"id": "traj_q1", "question_id": "q1", "question": "...",
     "ground_truth": {"answers": ["340 rpm"], "answer_locations": [{"document": "manual.pdf", "page": 7}], "category": ""},
     "iterations": [{"step": 1, "reasoning": "", "action": "search", "query": "rotor",
                     "results": [{"file": "manual.pdf", "page_number": 7, "total_pages": 20, "rank": 1}],
                     "gt_found": true, "gt_rank": 1, "rank_score": 1.0, "answer": null, "citations": null, "raw_response": ""}],
     "final_answer": ["340 rpm"], "final_citations": [], "success": true, ..., "model": "...", "timestamp": "...", "error": null}

The tutorial of the reference prints another form, which is read too: the page is in `ground_truth` itself (`file`, `page`), and a
`question_id`, with much else, is missing; it is the `id` then.

Such a record has no conversation and no page text.  Reading it rebuilds the conversation as this agent would have had it, in the
protocol and prompt of its configuration, pages by file and number alone.  All evidence pages count, not only the first.
What this project adds to a record (hinted, baseline, query_mode, question_words) is read again, and may be missing.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import score_ranking
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.rollout import record_question_search
from drag_ray.corpus.problems import Problem
from drag_ray.corpus.questions import parse_location
from drag_ray.corpus.records import read_name, read_records, read_text
from drag_ray.corpus.text import to_encodable
from drag_ray.errors import DataError
from drag_ray.process.interchange_format import Interchange, keep_first
from drag_ray.storage.artifacts import compute_fingerprint, whole_or_absent
from drag_ray.types import ActionKind, Answer, Evidence, Hit, Page, Provenance, Ranking, StopReason, Trajectory, Turn

_ANSWERS = ("provide_answer", "answer")
_ACTIONS = {ActionKind.ANSWER: "provide_answer", ActionKind.INVALID: "text_response"}
"""What the reference calls what we call otherwise."""
_OUT_OF_ITERATIONS = "Maximum iterations reached"

Record = dict[str, Any]
T = TypeVar("T")


def write_trajectories(trajectories: Iterable[Trajectory], path: Path) -> int:
    """Write a line for each trajectory; the file is whole or absent. Returns how many."""
    num_written = 0
    with whole_or_absent(path) as scratch, scratch.open("w", encoding="utf-8") as lines:
        for trajectory in trajectories:
            lines.write(json.dumps(to_record(trajectory), ensure_ascii=False) + "\n")
            num_written += 1
    return num_written


def read_trajectories(path: Path, config: AgentConfig) -> Iterator[Trajectory | Problem]:
    """The trajectory of each line, or the problem where a line is none, or has the id of an earlier one. Raises DataError where
    the file is missing or of another kind.

    Args:
        path: a `.jsonl` or `.jsonl.gz` file.
        config: the agent that conversations are rebuilt for; its top_k is taken as theirs.
    """
    return keep_first(read_records(path, _RecordReader(config).read))


class _RecordReader:
    """Makes trajectories of records, their conversations rebuilt for one agent configuration."""

    def __init__(self, config: AgentConfig) -> None:
        self._top_k = config.top_k
        self._query_mode = config.query_mode
        self._prompts = Prompts(config)
        self._protocol = get_protocol(config.protocol)
        self._question_search = replace(record_question_search(config, Ranking()), mode=config.query_mode)
        self._of_all_records: dict[str, Any] = {
            **{"group": "", "split": "train", "duration_s": 0.0},
            "tools": json.dumps(shown) if (shown := self._prompts.shown_functions) else "",
            **{"protocol": config.protocol, "top_k": config.top_k, "depth": config.top_k},
            "question_search": self._question_search,
        }
        self._agent_fingerprint = compute_fingerprint("drag", config.model_dump(mode="json"))

    def read(self, record: Record) -> Trajectory:
        """The trajectory of one record.

        Replies without a search or an answer are left out, as the reference asks again with the same prompt after them; so are
        calls of tools, which it does not have, and whose observations no record holds. Raises DataError where the record is not
        of the format.
        """
        asked = self._question_search
        for name, expected, default in (("query_mode", asked.mode, "rewrite"), ("question_words", asked.words, "all")):
            got = record.get(name, default)
            if got != expected:
                raise DataError(f"column {name!r}: got {got!r:.80}, expected {expected!r}. Set agent.{name} to it")
        truth = _require(record, "ground_truth", dict)
        is_printed = "answer_locations" not in truth and "file" in truth
        evidence = (parse_location(truth, "ground_truth"),) if is_printed else _read_pages(truth, "answer_locations")
        question = read_text(record, "question", required=True)
        conversation = self._prompts.opening(question)
        turns = self._read_turns(_require(record, "iterations", list), evidence, conversation)
        error = _read_note(record, "error").replace(_OUT_OF_ITERATIONS, "")
        answered = bool(turns) and turns[-1].action is ActionKind.ANSWER
        return Trajectory(
            id=read_name(record, "id", required=True),
            question_id=read_name(record, "question_id", *(("id",) if is_printed else ()), required=True),
            question=question,
            evidence=evidence,
            answers=tuple(to_encodable(str(answer)) for answer in _require(truth, "answers", list)),
            category=_read_note(truth, "category"),
            turns=turns,
            messages=json.dumps(conversation, ensure_ascii=False),
            stop_reason=StopReason.ERROR if error else StopReason.ANSWER if answered else StopReason.MAX_ITERATIONS,
            final_answer=turns[-1].answer if turns else Answer(),
            provenance=Provenance(
                model=_read_note(record, "model"),
                adapter="",
                agent_fingerprint=self._agent_fingerprint,
                index_fingerprint="drag",
                preset=_read_preset(record),
                sample_index=0,
                seed=0,
                started_at=_read_note(record, "timestamp"),
                baseline=_read_note(record, "baseline"),
                hinted=bool(record.get("hinted")),
            ),
            error=error,
            **self._of_all_records,
        )

    def _read_turns(self, iterations: list[Any], evidence: tuple[Evidence, ...], conversation: list[Record]) -> tuple[Turn, ...]:
        """The turns of the iterations; adds their replies, and what these led to, to the conversation."""
        turns: list[Turn] = []
        for iteration in iterations:
            action = _require(iteration, "action", str)
            is_search = action == ActionKind.SEARCH.value
            if not is_search and action not in _ANSWERS:
                continue
            place = {"step": len(turns) + 1, "num_prompt_messages": len(conversation)}
            turn = self._read_search(iteration, evidence, place) if is_search else self._read_answer(iteration, place)
            conversation.append({"role": "assistant", "content": turn.raw_text})
            if is_search:
                shown = [(hit, Page(hit.file, hit.page_number, 0, "")) for hit in turn.ranking.hits[: self._top_k]]
                conversation.append({"role": self._protocol.observation_role, "content": self._prompts.found_pages(shown)})
            turns.append(turn)
        return tuple(turns)

    def _read_search(self, iteration: Record, evidence: tuple[Evidence, ...], place: Record) -> Turn:
        query = read_text(iteration, "query", required=self._query_mode == "rewrite")
        reasoning = _read_reasoning(iteration)
        found = _read_pages(iteration, "results")
        hits = tuple(Hit(page.file, page.page_number, rank, 0.0) for rank, page in enumerate(found, start=1))
        return Turn(
            **place,
            reasoning=reasoning,
            action=ActionKind.SEARCH,
            query=query,
            raw_text=self._protocol.render_search(query, reasoning),
            ranking=score_ranking(Ranking(hits), evidence, self._top_k),
        )

    def _read_answer(self, iteration: Record, place: Record) -> Turn:
        reasoning, said = _read_reasoning(iteration), iteration.get("answer")
        answer = to_encodable(", ".join(map(str, said)) if isinstance(said, list) else str(said or ""))
        citations = _read_pages(iteration, "citations") if iteration.get("citations") else ()
        reply = self._protocol.render_answer(answer, citations, reasoning)
        of_answer: Record = {"action": ActionKind.ANSWER, "query": "", "answer": Answer(answer, citations)}
        return Turn(**place, reasoning=reasoning, raw_text=reply, **of_answer)


def to_record(trajectory: Trajectory) -> Record:
    """The record of one trajectory: every field of the reference, and hinted, baseline and how it searched, which it lacks."""
    ranks = {turn.step: turn.ranking.evidence_rank for turn in trajectory.turns if turn.ranking.rank_score > 0}
    searches = [turn for turn in trajectory.turns if turn.action is ActionKind.SEARCH]
    locations = [{"document": page.file, "page": page.page_number} for page in trajectory.evidence]
    best_rank = min((rank for rank in ranks.values() if rank is not None), default=None)
    return {
        "id": trajectory.id,
        "question_id": trajectory.question_id,
        "question": trajectory.question,
        "ground_truth": {"answers": list(trajectory.answers), "answer_locations": locations, "category": trajectory.category},
        "iterations": [_to_iteration(turn, trajectory.top_k) for turn in trajectory.turns],
        "final_answer": [trajectory.final_answer.text] if trajectory.final_answer.text else [],
        "final_citations": [_to_citation(page) for page in trajectory.final_answer.citations],
        "success": trajectory.stop_reason is StopReason.ANSWER,
        "gt_ever_found": bool(ranks),
        "first_gt_iteration": min(ranks, default=None),
        "best_gt_rank": best_rank,
        "best_rank_score": max((turn.ranking.rank_score for turn in searches), default=0.0),
        "total_iterations": len(trajectory.turns),
        "total_searches": len(searches),
        "sampling_config": trajectory.provenance.preset,
        "hinted": trajectory.provenance.hinted,
        "baseline": trajectory.provenance.baseline,
        "query_mode": trajectory.question_search.mode,
        "question_words": trajectory.question_search.words,
        "model": trajectory.provenance.model,
        "timestamp": trajectory.provenance.started_at,
        "error": trajectory.error or (_OUT_OF_ITERATIONS if trajectory.stop_reason is StopReason.MAX_ITERATIONS else None),
    }


def _to_iteration(turn: Turn, top_k: int) -> Record:
    is_answer = turn.action is ActionKind.ANSWER
    return {
        "step": turn.step,
        "reasoning": turn.reasoning,
        "action": _ACTIONS.get(turn.action, turn.action.value),
        "query": turn.query or None,
        "results": [{"file": hit.file, "page_number": hit.page_number, "rank": hit.rank} for hit in turn.ranking.hits[:top_k]],
        "gt_found": turn.ranking.rank_score > 0,
        "gt_rank": turn.ranking.evidence_rank if turn.ranking.rank_score > 0 else None,
        "rank_score": turn.ranking.rank_score if turn.ranking.rank_score > 0 else None,
        "answer": [turn.answer.text] if is_answer else None,
        "citations": [_to_citation(page) for page in turn.answer.citations] if is_answer else None,
        "raw_response": turn.raw_text,
    }


def _to_citation(page: Evidence) -> Record:
    return {"file": page.file, "page": page.page_number}


def _require(record: Any, name: str, expected: type[T]) -> T:
    value = record.get(name) if isinstance(record, dict) else record
    if not isinstance(value, expected):
        got = "nothing" if value is None else f"{value!r:.80} ({type(value).__name__})"
        raise DataError(f"column {name!r}: got {got}, expected {expected.__name__}")
    return value


def _read_pages(record: Record, name: str) -> tuple[Evidence, ...]:
    """The pages of a list, in any of the reference's spellings."""
    return tuple(parse_location(location, name) for location in _require(record, name, list))


def _read_note(record: Record, name: str) -> str:
    """Read a note that nothing depends on, as text, whatever it is."""
    return to_encodable(str(record.get(name) or ""))


def _read_reasoning(iteration: Record) -> str:
    return _read_note(iteration, "reasoning").strip()


def _read_preset(record: Record) -> str:
    sampling = record.get("sampling_config")
    name = _read_note(sampling, "name") if isinstance(sampling, dict) else _read_note(record, "sampling_config")
    return name or "default"


INTERCHANGE = Interchange(read_trajectories, write_trajectories, rebuilds=True, has_orders=False)
