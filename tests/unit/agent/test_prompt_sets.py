"""Other ways to ask the model the same."""

import asyncio
import json

from rollout_cases import QUESTION

from drag_ray.agent.config import AgentConfig, Example, PromptSet
from drag_ray.agent.environment import SearchEnvironment
from drag_ray.agent.rollout import Rollouts
from drag_ray.agent.task import Policy, RolloutTask
from drag_ray.engine.generate import Generation, Request

PROMPT_SETS = (
    PromptSet(instructions="Be brief.", examples=(Example(question="Where is the fuel?", query="tank"),)),
    PromptSet(examples=(Example(question="Who flies?", query="crew"),)),
)


def test_a_prompt_set_changes_what_the_policy_is_asked_with_and_not_what_is_recorded(environment: SearchEnvironment) -> None:
    config = AgentConfig(top_k=2, max_iterations=2, examples=(Example(question="What turns?", query="vane"),))
    said = [("<search>rotor</search>", (5,), (-0.5,)), ("<answer>x</answer>", (6,), (-0.25,))]

    async def generate(request: Request) -> Generation:
        requests.append(request)
        text, ids, logprobs = said[len(requests) % 2 - 1]
        return Generation(text, (1, 2, 3), ids, "stop", completion_logprobs=logprobs)

    requests: list[Request] = []
    rollouts = Rollouts(config, Policy("model"), generate, environment, "index", prompt_sets=PROMPT_SETS)
    own, brief, crew = (
        asyncio.run(rollouts.run(RolloutTask(QUESTION, number, "default", 7, prompt_set=number))) for number in range(3)
    )
    assert [trajectory.prompt_set for trajectory in (own, brief, crew)] == [0, 1, 2]
    assert own.messages == brief.messages == crew.messages
    assert own.agent_fingerprint == brief.agent_fingerprint
    assert "vane" in own.messages
    asked = [json.dumps(request.messages) for request in requests]
    assert [("vane" in text, "tank" in text, "crew" in text) for text in asked] == [
        *[(True, False, False)] * 2,
        *[(False, True, False)] * 2,
        *[(False, False, True)] * 2,
    ]
    assert ["Be brief." in text for text in asked] == [False, False, True, True, False, False]
    recorded = json.loads(brief.messages)
    assert list(requests[3].messages[4:]) == recorded[4:-1]  # the reply to the first opening, and the pages that it led to
    for trajectory, prompt_ids, logprobs in ((own, (1, 2, 3), (-0.5,)), (brief, (), ()), (crew, (), ())):
        turn = trajectory.turns[0]
        assert (turn.prompt_token_ids, turn.completion_token_ids, turn.completion_logprobs) == (prompt_ids, (5,), logprobs)
        assert recorded[turn.num_prompt_messages] == {"role": "assistant", "content": turn.raw_text}
