"""Builders of records with plausible defaults: a test names only the fields that it is about."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from drag_ray import schemas
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.storage import artifacts
from drag_ray.types import ActionKind, Evidence, Hit, Page, Question, StopReason, Trajectory, Turn

TOP_K = 3
DEPTH = 10
EVIDENCE = Evidence("manual.pdf", 7)
PATHS: dict[type, dict[str, str]] = {Turn: schemas.TURN_PATHS, Trajectory: schemas.PATHS}
T = TypeVar("T", Turn, Trajectory)
SYSTEM_PROMPT = "You search a document collection. Reply with a query in <search></search>."


def build_page(**fields: Any) -> Page:
    """A page of `manual.pdf` unless told otherwise."""
    defaults = {"file": EVIDENCE.file, "page_number": EVIDENCE.page_number, "total_pages": 20, "text": "Rotor speed limits."}
    return Page(**{**defaults, **fields})


def build_question(**fields: Any) -> Question:
    """A training question whose only evidence page is `EVIDENCE`."""
    defaults = {
        "id": "q1",
        "question": "How fast may the rotor turn?",
        "evidence": (EVIDENCE,),
        "answers": ("340 rpm",),
        "category": "manuals",
        "split": "train",
    }
    return Question(**{**defaults, **fields})


def build_hits(evidence_rank: int | None, num_hits: int = DEPTH, evidence: Evidence = EVIDENCE) -> tuple[Hit, ...]:
    """A ranking of `num_hits` pages with the evidence page at `evidence_rank`, or without it."""
    return tuple(
        Hit(evidence.file, evidence.page_number, rank, 20.0 - rank)
        if rank == evidence_rank
        else Hit("other.pdf", rank, rank, 20.0 - rank)
        for rank in range(1, num_hits + 1)
    )


def build_search(query: str = "rotor speed", evidence_rank: int | None = None, **fields: Any) -> Turn:
    """A turn that searches. Its step and its place in the conversation are set by `build_trajectory`."""
    found = evidence_rank is not None and evidence_rank <= TOP_K
    defaults = {
        "action": ActionKind.SEARCH,
        "query": query,
        "hits": build_hits(evidence_rank),
        "evidence_rank": evidence_rank,
        "rank_score": (TOP_K - evidence_rank + 1) / TOP_K if found and evidence_rank else 0.0,
        "raw_text": f"<search>{query}</search>",
    }
    return build_turn(**{**defaults, **fields})


def build_answer(answer: str = "340 rpm", **fields: Any) -> Turn:
    """A turn that answers."""
    defaults = {"action": ActionKind.ANSWER, "answer": answer, "raw_text": f"<answer>{answer}</answer>"}
    return build_turn(**{**defaults, **fields})


def build_call(tool: str = "grep", tool_error: str = "", **fields: Any) -> Turn:
    """A turn that calls a tool."""
    arguments = '{"file": "manual.pdf", "text": "rpm"}'
    reply = f'<tool_call>\n{{"name": "{tool}", "arguments": {arguments}}}\n</tool_call>'
    defaults = {"action": ActionKind.TOOL, "tool": tool, "arguments": arguments, "raw_text": reply, "tool_s": 0.25}
    return build_turn(**{**defaults, "tool_error": tool_error, **fields})


def build_turn(**fields: Any) -> Turn:
    """A turn from which no action could be read, unless told otherwise."""
    defaults = {
        "step": 0,
        "num_prompt_messages": 0,
        "reasoning": "",
        "action": ActionKind.INVALID,
        "query": "",
        "raw_text": "I do not know.",
        "prompt_token_ids": (1, 2, 3),
        "completion_token_ids": (4, 5),
        "generate_s": 0.5,
        "search_s": 0.01,
    }
    given = {**defaults, **fields}
    usage = {"num_prompt_tokens": len(given["prompt_token_ids"]), "num_completion_tokens": len(given["completion_token_ids"])}
    return _assemble(Turn, {**usage, **given})


def change(record: T, **fields: Any) -> T:
    """`dataclasses.replace` by the names that fields have side by side (`schemas.PATHS`)."""
    groups = {name: getattr(record, name) for name in record.__dataclass_fields__}
    flat = schemas.flatten(groups, PATHS[type(record)], lambda group: {name: getattr(group, name) for name in group.__slots__})
    return _assemble(type(record), flat | fields)


def _assemble(record_type: type[T], fields: dict[str, Any]) -> T:
    paths = PATHS[record_type]
    grouped = schemas.group(fields, paths, record_type)
    assert fields.keys() <= paths.keys() | grouped.keys(), f"unknown: {fields.keys() - paths.keys() - grouped.keys()}"
    types = get_type_hints(record_type)
    return record_type(**{name: types[name](**part) if isinstance(part, dict) else part for name, part in grouped.items()})


def asked_at(question_rank: int | None) -> dict[str, Any]:
    """Fields of a trajectory whose question itself was searched, and ranked the evidence page so."""
    return {"question_hits": build_hits(question_rank), "question_rank": question_rank}


def build_trajectory(*turns: Turn, question: Question | None = None, sample_index: int = 0, **fields: Any) -> Trajectory:
    """A rollout of `turns`: it numbers them and writes the conversation that they belong to.

    The conversation is system, user, then each reply followed by what the policy was shown of its result. The question was not
    searched, unless `question_hits` says otherwise: see `asked_at`.
    """
    question = question or build_question()
    messages = [{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": f"Question: {question.question}"}]
    placed = []
    for step, turn in enumerate(turns, start=1):
        placed.append(replace(turn, step=step, num_prompt_messages=len(messages)))
        messages.append({"role": "assistant", "content": turn.raw_text})
        if turn.action != ActionKind.ANSWER:
            messages.append({"role": "user", "content": f"Results of step {step}: {len(turn.ranking.hits)} pages."})
    answered = bool(turns) and turns[-1].action == ActionKind.ANSWER
    defaults = {
        "id": f"{question.id}-{sample_index}",
        "question_id": question.id,
        "question": question.question,
        "evidence": question.evidence,
        "answers": question.answers,
        "category": question.category,
        "group": question.group,
        "split": question.split,
        "sample_index": sample_index,
        "seed": sample_index,
        "preset": "default",
        "turns": tuple(placed),
        "messages": json.dumps(messages),
        "protocol": "tags",
        "stop_reason": StopReason.ANSWER if answered else StopReason.MAX_ITERATIONS,
        "final_answer": turns[-1].answer.text if answered else "",
        "citations": turns[-1].answer.citations if answered else (),
        "query_mode": "rewrite",
        "top_k": TOP_K,
        "depth": DEPTH,
        "model": "embedded",
        "adapter": "",
        "agent_fingerprint": "agent",
        "index_fingerprint": "index",
        "started_at": "2026-01-01T00:00:00+00:00",
        "duration_s": 1.0,
    }
    return _assemble(Trajectory, {**defaults, **fields})


def ask_for_answer(trajectory: Trajectory) -> Trajectory:
    """The rollout with the request for an answer before its last reply."""
    messages = json.loads(trajectory.messages)
    messages[trajectory.turns[-1].num_prompt_messages - 1]["content"] += "\n\n" + get_protocol("tags").final_request
    return replace(trajectory, messages=json.dumps(messages))


def write_trajectories(path: Path, trajectories: Iterable[Trajectory]) -> Path:
    """A file as a collection leaves it."""
    artifacts.write_parquet(path, schemas.to_table(trajectories, schemas.TRAJECTORIES))
    return path
