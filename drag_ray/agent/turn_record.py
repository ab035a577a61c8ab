"""The record of a turn: a reply, what was read from it and what came of it."""

from dataclasses import replace

from drag_ray.agent.action import Action
from drag_ray.agent.environment import SearchResult
from drag_ray.agent.shown_images import Hidden
from drag_ray.engine.generate import Generation
from drag_ray.tools.calls import CallOutcome
from drag_ray.types import Turn


def record_turn(
    step: int,
    num_prompt_messages: int,
    hidden: Hidden,
    action: Action,
    generation: Generation,
    found: SearchResult,
    called: CallOutcome,
    generate_s: float,
) -> Turn:
    """The turn of a reply to the first `num_prompt_messages` messages without what is `hidden`."""
    return Turn(
        step=step,
        num_prompt_messages=num_prompt_messages,
        reasoning=action.reasoning,
        action=action.kind,
        query=action.query,
        hits=found.hits,
        evidence_rank=found.evidence_rank,
        rank_score=found.rank_score,
        answer=action.answer,
        citations=action.citations,
        raw_text=generation.text,
        prompt_token_ids=generation.prompt_token_ids,
        completion_token_ids=generation.completion_token_ids,
        finish_reason=generation.finish_reason,
        generate_s=generate_s,
        search_s=found.search_s,
        error=found.error,
        completion_logprobs=generation.completion_logprobs,
        num_prompt_tokens=generation.usage.num_prompt_tokens,
        num_completion_tokens=generation.usage.num_completion_tokens,
        partial_search=found.is_partial,
        tool=action.tool,
        arguments=action.arguments,
        tool_error=called.error,
        tool_s=called.seconds,
        hidden_images=hidden.images,
        hidden_messages=hidden.messages,
        prompt_digest=generation.prompt_digest,
    )


def share_tokens(turn: Turn, before: Turn) -> Turn:
    """The same turn, with the token ids that its prompt begins with in common with the turn before as the very same objects.

    A prompt repeats what was said before it. Each of its numbers is made anew, so that the prompts of a long rollout would take
    many times the memory of all that was said in it.
    """
    known = before.prompt_token_ids + before.completion_token_ids
    num_shared = _count_shared(known, turn.prompt_token_ids)
    return replace(turn, prompt_token_ids=known[:num_shared] + turn.prompt_token_ids[num_shared:])


def _count_shared(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    if second[: len(first)] == first:
        return len(first)
    return next((place for place, (one, other) in enumerate(zip(first, second, strict=False)) if one != other), len(second))
