"""The record of a turn: a reply, what was read from it and what came of it."""

from dataclasses import replace

from drag_ray.agent.action import Action
from drag_ray.agent.config import AgentConfig
from drag_ray.agent.environment import SearchResult
from drag_ray.agent.shown_images import Hidden
from drag_ray.engine.generate import Generation
from drag_ray.tools.calls import CallOutcome
from drag_ray.types import Answer, QuestionSearch, Ranking, Reply, ToolCall, Turn


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
        raw_text=generation.text,
        error=found.error,
        reply=Reply(
            prompt_token_ids=generation.prompt_token_ids,
            completion_token_ids=generation.completion_token_ids,
            completion_logprobs=generation.completion_logprobs,
            prompt_digest=generation.prompt_digest,
            num_prompt_tokens=generation.usage.num_prompt_tokens,
            num_completion_tokens=generation.usage.num_completion_tokens,
            finish_reason=generation.finish_reason,
            generate_s=generate_s,
            hidden_images=hidden.images,
            hidden_messages=hidden.messages,
        ),
        ranking=found.ranking,
        answer=Answer(action.answer, action.citations),
        call=ToolCall(action.tool, action.arguments, called.error, called.seconds),
    )


def record_question_search(config: AgentConfig, ranking: Ranking) -> QuestionSearch:
    """The search of the question by an agent of this configuration, which found this."""
    if not config.expands:
        return QuestionSearch(hits=ranking.hits, rank=ranking.evidence_rank)
    return QuestionSearch("expand", config.question_weight, config.question_words, ranking.hits, ranking.evidence_rank)


def share_tokens(turn: Turn, before: Turn) -> Turn:
    """The same turn, with the token ids that its prompt begins with in common with the turn before as the very same objects.

    A prompt repeats what was said before it. Each of its numbers is made anew, so that the prompts of a long rollout would take
    many times the memory of all that was said in it.
    """
    known = before.reply.prompt_token_ids + before.reply.completion_token_ids
    num_shared = _count_shared(known, turn.reply.prompt_token_ids)
    shared = known[:num_shared] + turn.reply.prompt_token_ids[num_shared:]
    return replace(turn, reply=replace(turn.reply, prompt_token_ids=shared))


def _count_shared(first: tuple[int, ...], second: tuple[int, ...]) -> int:
    if second[: len(first)] == first:
        return len(first)
    return next((place for place, (one, other) in enumerate(zip(first, second, strict=False)) if one != other), len(second))
