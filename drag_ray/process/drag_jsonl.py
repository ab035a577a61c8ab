"""Trajectories in the file format of the agentic retrieval fine-tuning (DRAG) reference: one JSON object a line.

    {"id": "traj_q1", "question_id": "q1", "question": "...",
     "ground_truth": {"answers": ["340 rpm"], "answer_locations": [{"document": "manual.pdf", "page": 7}], "category": ""},
     "iterations": [{"step": 1, "reasoning": "", "action": "search", "query": "rotor",
                     "results": [{"file": "manual.pdf", "page_number": 7, "total_pages": 20, "rank": 1}],
                     "gt_found": true, "gt_rank": 1, "rank_score": 1.0, "answer": null, "citations": null, "raw_response": ""}],
     "final_answer": ["340 rpm"], "final_citations": [], "success": true, ..., "model": "...", "timestamp": "...", "error": null}

Such a record has no conversation and no page text.  Reading it rebuilds the conversation as this agent would have had it, in the
protocol and prompt of its configuration, pages by file and number alone.  All evidence pages count, not only the first.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import compute_evidence_rank
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocol import get_protocol
from drag_ray.agent.scores import compute_rank_score
from drag_ray.artifacts import compute_fingerprint
from drag_ray.errors import DataError
from drag_ray.types import ActionKind, Evidence, Hit, Page, StopReason, Trajectory, Turn

_ANSWERS = ("provide_answer", "answer")
_OUT_OF_ITERATIONS = "Maximum iterations reached"

Record = dict[str, Any]


def read_trajectories(lines: Iterable[str], place: str, config: AgentConfig) -> Iterator[Trajectory | str]:
    """The trajectory of each line, or the place and reason where a line is none.

    Args:
        lines: of the file; empty ones are passed over.
        place: the file, for the reasons.
        config: the agent that conversations are rebuilt for; its top_k is taken as theirs.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            yield f"{place}:{number}: not JSON ({error}); was the file cut?"
            continue
        try:
            yield to_trajectory(record, config)
        except KeyError as error:
            yield f"{place}:{number}: no {error.args[0]!r}"
        except (TypeError, ValueError, AttributeError) as error:
            yield f"{place}:{number}: {error}"


def to_trajectory(record: Record, config: AgentConfig) -> Trajectory:
    """The trajectory of one record.

    Replies without a search or an answer are left out, as the reference asks again with the same prompt after them.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the record is not of the format.
    """
    truth = record["ground_truth"]
    evidence = tuple(_read_page(location) for location in truth["answer_locations"])
    question = _require_text(record, "question")
    conversation = Prompts(config).opening(question)
    turns: list[Turn] = []
    for iteration in record["iterations"]:
        if iteration["action"] == ActionKind.SEARCH.value or iteration["action"] in _ANSWERS:
            turns.append(_read_turn(iteration, len(turns) + 1, evidence, conversation, config))
    error = str(record.get("error") or "").replace(_OUT_OF_ITERATIONS, "")
    answered = bool(turns) and turns[-1].action is ActionKind.ANSWER
    return Trajectory(
        id=_require_text(record, "id"),
        question_id=_require_text(record, "question_id"),
        question=question,
        evidence=evidence,
        answers=tuple(str(answer) for answer in truth["answers"]),
        category=str(truth.get("category") or ""),
        group="",
        split="train",
        sample_index=0,
        seed=0,
        preset=_read_preset(record.get("sampling_config")),
        turns=tuple(turns),
        messages=json.dumps(conversation, ensure_ascii=False),
        protocol=config.protocol,
        stop_reason=StopReason.ERROR if error else StopReason.ANSWER if answered else StopReason.MAX_ITERATIONS,
        final_answer=turns[-1].answer if turns else "",
        citations=turns[-1].citations if turns else (),
        top_k=config.top_k,
        depth=config.top_k,
        model=str(record.get("model") or ""),
        adapter="",
        agent_fingerprint=compute_fingerprint("drag", config.model_dump(mode="json")),
        index_fingerprint="drag",
        started_at=str(record.get("timestamp") or ""),
        duration_s=0.0,
        error=error,
        hinted=bool(record.get("hinted")),
    )


def to_record(trajectory: Trajectory) -> Record:
    """The record of one trajectory, with every field of the reference, and `hinted`, which the reference does not have."""
    ranks = {turn.step: turn.evidence_rank for turn in trajectory.turns if turn.rank_score > 0}
    searches = [turn for turn in trajectory.turns if turn.action is ActionKind.SEARCH]
    locations = [{"document": page.file, "page": page.page_number} for page in trajectory.evidence]
    best_rank = min((rank for rank in ranks.values() if rank is not None), default=None)
    return {
        "id": trajectory.id,
        "question_id": trajectory.question_id,
        "question": trajectory.question,
        "ground_truth": {
            "answers": list(trajectory.answers),
            "answer_locations": locations,
            "category": trajectory.category,
        },
        "iterations": [_to_iteration(turn, trajectory.top_k) for turn in trajectory.turns],
        "final_answer": [trajectory.final_answer] if trajectory.final_answer else [],
        "final_citations": [_to_citation(page) for page in trajectory.citations],
        "success": trajectory.stop_reason is StopReason.ANSWER,
        "gt_ever_found": bool(ranks),
        "first_gt_iteration": min(ranks, default=None),
        "best_gt_rank": best_rank,
        "best_rank_score": max((turn.rank_score for turn in searches), default=0.0),
        "total_iterations": len(trajectory.turns),
        "total_searches": len(searches),
        "sampling_config": trajectory.preset,
        "hinted": trajectory.hinted,
        "model": trajectory.model,
        "timestamp": trajectory.started_at,
        "error": trajectory.error or (_OUT_OF_ITERATIONS if trajectory.stop_reason is StopReason.MAX_ITERATIONS else None),
    }


def _read_turn(
    iteration: Record, step: int, evidence: tuple[Evidence, ...], conversation: list[Record], config: AgentConfig
) -> Turn:
    """The turn of an iteration; adds its reply, and what that led to, to the conversation."""
    protocol = get_protocol(config.protocol)
    reasoning = str(iteration.get("reasoning") or "").strip()
    is_search = iteration["action"] == ActionKind.SEARCH.value
    query, answer = "", ""
    hits: tuple[Hit, ...] = ()
    citations: tuple[Evidence, ...] = ()
    if is_search:
        query = _require_text(iteration, "query")
        found = (_read_page(result) for result in iteration["results"])
        hits = tuple(Hit(page.file, page.page_number, rank, 0.0) for rank, page in enumerate(found, start=1))
        reply = protocol.render_search(query, reasoning)
    else:
        answer = _join_answers(iteration.get("answer"))
        citations = tuple(_read_page(citation) for citation in iteration.get("citations") or ())
        reply = protocol.render_answer(answer, citations, reasoning)
    rank = compute_evidence_rank(hits, evidence)
    num_prompt_messages = len(conversation)
    conversation.append({"role": "assistant", "content": reply})
    if is_search:
        shown = [(hit, Page(hit.file, hit.page_number, 0, "")) for hit in hits[: config.top_k]]
        conversation.append({"role": protocol.observation_role, "content": Prompts(config).found_pages(shown)})
    return Turn(
        step=step,
        num_prompt_messages=num_prompt_messages,
        reasoning=reasoning,
        action=ActionKind.SEARCH if is_search else ActionKind.ANSWER,
        query=query,
        hits=hits,
        evidence_rank=rank,
        rank_score=compute_rank_score(rank, config.top_k),
        answer=answer,
        citations=citations,
        raw_text=reply,
        prompt_token_ids=(),
        completion_token_ids=(),
        finish_reason="stop",
        generate_s=0.0,
        search_s=0.0,
    )


def _to_iteration(turn: Turn, top_k: int) -> Record:
    is_answer = turn.action is ActionKind.ANSWER
    return {
        "step": turn.step,
        "reasoning": turn.reasoning,
        "action": "provide_answer" if is_answer else "text_response" if turn.action is ActionKind.INVALID else turn.action.value,
        "query": turn.query or None,
        "results": [{"file": hit.file, "page_number": hit.page_number, "rank": hit.rank} for hit in turn.hits[:top_k]],
        "gt_found": turn.rank_score > 0,
        "gt_rank": turn.evidence_rank if turn.rank_score > 0 else None,
        "rank_score": turn.rank_score if turn.rank_score > 0 else None,
        "answer": [turn.answer] if is_answer else None,
        "citations": [_to_citation(page) for page in turn.citations] if is_answer else None,
        "raw_response": turn.raw_text,
    }


def _to_citation(page: Evidence) -> Record:
    return {"file": page.file, "page": page.page_number}


def _read_page(location: Record | str) -> Evidence:
    """A page in any of the reference's spellings: {document or file, page or page_number}, or "file:page"."""
    if isinstance(location, str):
        file, _, number = location.rpartition(":")
        return Evidence(file, int(number))
    file = location.get("document") or location.get("file")
    number = location.get("page_number", location.get("page"))
    if not isinstance(file, str) or not isinstance(number, int):
        raise DataError(f"a page is {location!r}, expected a document or file and a page number")
    return Evidence(file, number)


def _read_preset(sampling: Any) -> str:
    return str(sampling.get("name") or "default") if isinstance(sampling, dict) else str(sampling or "default")


def _require_text(record: Record, name: str) -> str:
    value = record[name]
    if not isinstance(value, str) or not value:
        raise TypeError(f"{name!r} is {value!r}, expected a text")
    return value


def _join_answers(answer: Any) -> str:
    return ", ".join(str(item) for item in answer) if isinstance(answer, list) else str(answer or "")
