"""One rollout: a question, up to `max_iterations` replies with their searches, one trajectory.

A hinted rollout is shown the evidence page, as STaR (Zelikman et al., Bootstrapping Reasoning With Reasoning, 2022) gives the
answer where no sample solved a problem, and is trained on as if the hint had not been there: what is learned is the query that
finds the page. A reply of such a rollout may speak of the hint, so its reasoning is never trained on; a query that repeats a
passage of the page could not have been thought of without it, and is refused.
"""

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import takewhile

from drag_ray.agent.config import AgentConfig, PromptSet
from drag_ray.agent.environment import SearchEnvironment, SearchResult
from drag_ray.agent.prompts import Prompts
from drag_ray.agent.protocols import Action, ActionProtocol
from drag_ray.agent.protocols.registry import get_protocol
from drag_ray.agent.shown_images import Content, Hidden, leave_out, leave_out_images, list_hidden_images, list_hidden_messages
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.agent.tasks import ORDERING
from drag_ray.agent.tasks.task import Episode, Setting, load_task
from drag_ray.engine.generate import GenerateFn, Generation, Message, Request
from drag_ray.engine.sampling import PRESETS
from drag_ray.errors import BudgetError, EngineDiedError, PromptTooLongError
from drag_ray.search.normal_form import normalise
from drag_ray.storage.artifacts import compute_fingerprint
from drag_ray.tools.calls import CallLimits, CallOutcome, CallTool
from drag_ray.tools.function import Function
from drag_ray.tools.images.rollout_images import ImageSource, RolloutImages
from drag_ray.tools.search import TOOL as SEARCH
from drag_ray.tools.workspace import PageSource, Workspace
from drag_ray.types import (
    ActionKind,
    Answer,
    Hit,
    Page,
    Provenance,
    QuestionSearch,
    Ranking,
    Reply,
    StopReason,
    ToolCall,
    Trajectory,
    Turn,
)

HINT_CHARS = 1200
"""characters of the page that are shown"""
QUOTED_WORDS = 6
"""words in a row that a query may not share with the page"""
MAX_ALIKE = 3
"""equal replies in a row, each answered alike, after which a policy is asked for its answer"""
QUOTE_PROBLEM = "the query is a quotation; search with a few key words"

_HINT = (
    "This page answers the question below:\n\n{text}\n\nWrite what finds it, as somebody would who has not seen the page: with "
    "words that the question suggests and the page holds. Do not mention the page, do not quote it, do not give the answer away."
)
_WORD = re.compile(r"\w+")


def write_hint(page: Page) -> str:
    """The hint, which stands before the question in the prompt."""
    return _HINT.format(text=page.text[:HINT_CHARS].strip())


def is_quotation(query: str, page: Page) -> bool:
    """True if a query shares `QUOTED_WORDS` words in a row with the page, whatever their case and what stands between them."""
    words = _WORD.findall(normalise(query).casefold())
    text = f" {' '.join(_WORD.findall(normalise(page.text).casefold()))} "
    starts = range(len(words) - QUOTED_WORDS + 1)
    return any(f" {' '.join(words[start : start + QUOTED_WORDS])} " in text for start in starts)


NoteTurn = Callable[[Turn, Content], object]


@dataclass(frozen=True, slots=True)
class _Prompt:
    """A prompt: the first `num_messages` of the conversation, with the opening that the task asks for, and
    without what is `hidden`."""

    messages: tuple[Message, ...]
    num_messages: int
    hidden: Hidden


class Rollouts:
    """Runs rollouts of one policy against one index. Any number may run at once.

    Those of a prompt set need `prompt_sets`, tools need `pages`, and those that show images need `images`, into whose first store
    they go. With `max_turns` above 0 they end after as many turns, whatever the agent's configuration says.
    """

    def __init__(
        self,
        config: AgentConfig,
        policy: Policy,
        generate: GenerateFn,
        environment: SearchEnvironment,
        index_fingerprint: str,
        search_help: str = "",
        prompt_sets: Sequence[PromptSet] = (),
        max_turns: int = 0,
        pages: PageSource | None = None,
        images: ImageSource | None = None,
        callers: Mapping[str, CallTool] | None = None,
    ) -> None:
        self.orders = config.task in ORDERING
        self._config = config
        self._policy = policy
        self._generate = generate
        self._environment = environment
        self._index_fingerprint = index_fingerprint
        self._prompts = Prompts(config, search_help)
        self._agent_fingerprint = compute_fingerprint(config.model_dump(mode="json"), self._prompts.shown_functions)
        self._tools = config.load_tools()
        self._callers: Mapping[str, CallTool] = {**self._tools.callers, **(callers or {})}
        self._limits = CallLimits(config.tool_timeout_s, config.observation_chars)
        self._pages = pages
        self._images = images
        self._protocol = get_protocol(config.protocol_name)
        self._task = load_task(config.task)
        self._setting = Setting(config, self._prompts, environment, max_turns or config.max_iterations)
        self._prompt_sets = [Prompts(config.ask_with(prompt_set), search_help) for prompt_set in prompt_sets]

    async def run(self, task: RolloutTask, note_turn: NoteTurn = lambda *_: None) -> Trajectory:
        """Run one rollout. A failure is recorded on the trajectory and not raised, so that one question cannot end a run. Raises
        EngineDiedError where nothing can be said of the rollout, and no other could be run either; BudgetError: as above.
        `note_turn`: is told of each turn as soon as it is over, and of what the policy is told next."""
        conversation: list[Message] = []
        turns: list[Turn] = []
        started_at, started = datetime.now(UTC).isoformat(timespec="milliseconds"), time.perf_counter()
        error, asked = "", SearchResult()
        try:
            asked = await self._task.ask(self._setting, task.question)
            images = RolloutImages(self._images, self._config.max_images, task.question.images)
            name_image = images.add if self._tools.shows_images else None
            episode = await self._task.begin(self._setting, task.question, asked, name_image)
            conversation += episode.open(self._prompts)
            stop_reason = StopReason.ERROR
            if not asked.error:
                stop_reason = await self._take_turns(task, episode, images, conversation, turns, note_turn)
            error = asked.error or (turns[-1].error if stop_reason is StopReason.ERROR else "")
        except PromptTooLongError as problem:
            stop_reason, error = StopReason.CONTEXT_LENGTH, "" if turns else str(problem)
        except (EngineDiedError, BudgetError):
            raise
        except Exception as problem:
            # The one broad catch of the project: whatever one rollout meets is data about that rollout.
            stop_reason, error = StopReason.ERROR, f"{type(problem).__name__}: {problem}"
        duration_s = time.perf_counter() - started
        told = conversation or self._prompts.opening(task.question.question, task.question.images)
        return self._record_trajectory(task, tuple(turns), told, stop_reason, error, started_at, duration_s, asked)

    def fail(self, task: RolloutTask, error: str) -> Trajectory:
        """The record of a rollout that could not make its own."""
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        opening = self._prompts.opening(task.question.question, task.question.images)
        return self._record_trajectory(task, (), opening, StopReason.ERROR, error, started_at, 0.0, SearchResult())

    async def _take_turns(
        self,
        task: RolloutTask,
        episode: Episode,
        images: RolloutImages,
        conversation: list[Message],
        turns: list[Turn],
        note_turn: NoteTurn,
    ) -> StopReason:
        last_step, num_opening = episode.max_turns, len(conversation)
        asked_with = episode.open(self._prompt_sets[task.prompt_set - 1]) if task.prompt_set else conversation[:]
        hint_page = await self._choose_hint(task)
        told, step = list[tuple[str, Content]](), 0
        while True:
            step += 1
            hidden = self._hide(conversation, num_opening, images)
            later = leave_out(conversation, hidden)[num_opening:]
            prompt = _Prompt((*leave_out_images(asked_with, hidden.images), *later), len(conversation), hidden)
            turn, observation = await self._take_turn(task, episode, prompt, step, hint_page, images)
            turns.append(share_tokens(turn, turns[-1]) if turns else turn)
            note_turn(turn, observation)
            conversation.append({"role": "assistant", "content": turn.raw_text})
            if turn.error:
                return StopReason.ERROR
            if episode.is_complete(turn):
                return StopReason.ANSWER
            if _count_last_errors(turns) == self._config.max_tool_errors > 0:
                return StopReason.TOOL_ERRORS
            if step == last_step:
                return StopReason.MAX_ITERATIONS
            told = [*told[1 - MAX_ALIKE :], (turn.raw_text, observation)]
            if episode.asks_for_answer and told == [told[-1]] * MAX_ALIKE:  # it would go on so to the last turn
                last_step = step + 1
            if step + 1 == last_step and episode.asks_for_answer:
                observation = self._prompts.followed_by_final_request(observation)
            conversation.append({"role": self._protocol.observation_role, "content": observation})

    def _hide(self, conversation: Sequence[Message], num_opening: int, images: RolloutImages) -> Hidden:
        """The images and messages that the next prompt is without."""
        return Hidden(
            list_hidden_images(conversation, num_opening, self._config.image_searches, images.dismissed),
            list_hidden_messages(conversation, num_opening, self._config.text_searches),
        )

    async def _choose_hint(self, task: RolloutTask) -> Page | None:
        if not task.hinted:
            return None
        place = task.question.evidence[0]
        [page] = await self._environment.read_pages([Hit(place.file, place.page_number, 1, 0.0)])
        return page

    async def _take_turn(
        self, task: RolloutTask, episode: Episode, prompt: _Prompt, step: int, hint_page: Page | None, images: RolloutImages
    ) -> tuple[Turn, Content]:
        """One reply and what it leads to: the turn's record, and what the policy is told next."""
        messages = prompt.messages
        request = Request(
            messages=tuple(self._prompts.preceded_by_hint(messages, write_hint(hint_page))) if hint_page else messages,
            sampling=PRESETS[task.preset],
            max_tokens=self._config.max_tokens,
            seed=(task.seed + step) & 0x7FFF_FFFF,
            stop=self._protocol.stop,
            tools=self._prompts.shown_functions,
            form=self._prompts.reply_form,
            adapter=self._policy.adapter,
        )
        started = time.perf_counter()
        generation = await self._generate(request)
        generate_s = time.perf_counter() - started
        action = read_action(generation, self._protocol, self._tools.functions, may_be_empty=self._config.expands)
        if hint_page or task.prompt_set:
            # Token ids and log-probabilities that belong to another prompt must not be taken for the recorded one's.
            others = {"prompt_token_ids": (), "completion_logprobs": (), "prompt_digest": ""}
            generation = replace(generation, **others, reported_usage=generation.usage)
        if hint_page and is_quotation(action.query, hint_page):
            action = Action(ActionKind.INVALID, action.reasoning, problem=QUOTE_PROBLEM)
        found, called = SearchResult(), CallOutcome("")
        observation: Content = ""
        if action.kind is ActionKind.SEARCH:
            found, observation = await episode.search(action.query)
        elif action.kind is ActionKind.TOOL:
            called = await self._call(action, images)
            observation = episode.follow_call(self._show(called, images))
        elif action.kind is ActionKind.INVALID:
            observation = episode.remind(action.problem)
        return _record_turn(step, prompt, action, generation, found, called, generate_s), observation

    async def _call(self, action: Action, images: RolloutImages) -> CallOutcome:
        assert self._pages, "tools need pages"
        return await self._callers[action.tool].call(action.arguments, Workspace(self._pages, images), self._limits)

    def _show(self, called: CallOutcome, images: RolloutImages) -> Content:
        """The message to the policy about a call. What it is shown gets a name, and what it dismissed leaves the prompt."""
        if called.kept_images is not None:
            images.keep_only(called.kept_images)
        return self._prompts.called_tool(called.text, [(images.show(image), image.key, image.caption) for image in called.images])

    def _record_trajectory(
        self,
        task: RolloutTask,
        turns: tuple[Turn, ...],
        conversation: list[Message],
        stop_reason: StopReason,
        error: str,
        started_at: str,
        duration_s: float,
        asked: SearchResult,
    ) -> Trajectory:
        question = task.question
        return Trajectory(
            id=task.id,
            question_id=question.id,
            question=question.question,
            evidence=question.evidence,
            answers=question.answers,
            category=question.category,
            group=question.group,
            split=question.split,
            turns=turns,
            messages=json.dumps(conversation, ensure_ascii=False),
            protocol=self._protocol.name,
            stop_reason=stop_reason,
            final_answer=turns[-1].answer if turns else Answer(),
            top_k=self._config.top_k,
            depth=self._config.depth,
            duration_s=duration_s,
            question_search=record_question_search(self._config, asked.ranking),
            provenance=Provenance(
                model=self._policy.model,
                adapter=self._policy.adapter,
                agent_fingerprint=self._agent_fingerprint,
                index_fingerprint=self._index_fingerprint,
                preset=task.preset,
                sample_index=task.sample_index,
                seed=task.seed,
                started_at=started_at,
                baseline=task.baseline,
                prompt_set=task.prompt_set,
                policy=task.policy,
                hinted=task.hinted,
            ),
            error=error,
            tools=json.dumps(shown) if (shown := self._prompts.shown_functions) else "",
            task=self._config.task,
        )


def read_action(
    generation: Generation, protocol: ActionProtocol, functions: Sequence[Function] = (SEARCH,), *, may_be_empty: bool
) -> Action:
    """The action of a reply, also of one that begins within its reasoning.

    Args:
        functions: of the agent.
        may_be_empty: whether there is something to search for even if the reply names nothing: the question.
    """
    action = protocol.parse(generation.full_text, functions)
    if action.kind is ActionKind.SEARCH and not action.query and not may_be_empty:
        return Action(ActionKind.INVALID, action.reasoning, problem="the search is empty")
    return action


def _count_last_errors(turns: Sequence[Turn]) -> int:
    """The calls of tools that have failed since one did not, or none was called."""
    return sum(1 for _ in takewhile(lambda turn: turn.call.error, reversed(turns)))


def _record_turn(
    step: int, prompt: _Prompt, action: Action, reply: Generation, found: SearchResult, called: CallOutcome, generate_s: float
) -> Turn:
    """The turn of a reply to a prompt."""
    return Turn(
        step=step,
        num_prompt_messages=prompt.num_messages,
        reasoning=action.reasoning,
        action=action.kind,
        query=action.query,
        raw_text=reply.text,
        error=found.error,
        reply=Reply(
            prompt_token_ids=reply.prompt_token_ids,
            completion_token_ids=reply.completion_token_ids,
            completion_logprobs=reply.completion_logprobs,
            prompt_digest=reply.prompt_digest,
            num_prompt_tokens=reply.usage.num_prompt_tokens,
            num_completion_tokens=reply.usage.num_completion_tokens,
            finish_reason=reply.finish_reason,
            generate_s=generate_s,
            hidden_images=prompt.hidden.images,
            hidden_messages=prompt.hidden.messages,
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
