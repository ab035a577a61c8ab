"""A scripted optimisation: questions with words that are missing in them, and a model that follows its instructions."""

from collections.abc import Callable, Sequence

from factories import asked_at, build_question, build_search, build_trajectory

from drag_ray.agent.config import AgentConfig
from drag_ray.engine.config import EngineConfig
from drag_ray.errors import DragRayError
from drag_ray.prompt.config import PromptConfig, PromptSections
from drag_ray.prompt.optimisation import Outcome, build_outcome
from drag_ray.rollout.config import RolloutConfig
from drag_ray.types import Evidence, Question

OWN = "Write words."


def build_sections(seed: int = 0) -> PromptSections:
    """An agent that begins with `OWN`, and proposals from three questions."""
    agent, rollout = AgentConfig(instructions=OWN), RolloutConfig(max_failure_rate=0.2)
    return PromptSections(seed, agent, EngineConfig(), rollout, PromptConfig(minibatch_size=3))


def build_sets(num_feedback: int = 12, num_validation: int = 6) -> tuple[list[Question], list[Question]]:
    """Questions to reflect on, and questions to choose by."""
    questions = [
        build_question(id=f"q{number}", question=f"How fast is rotor {number}?", evidence=(Evidence("a.pdf", number + 1),))
        for number in range(num_feedback + num_validation)
    ]
    return questions[:num_feedback], questions[num_feedback:]


class ScriptedPromptEngine:
    """Finds the evidence at the rank that `rank` gives instructions and question, and proposes what `propose` gives a request.

    Attributes:
        asked: the instructions and the ids of the questions of each batch.
        requests: for proposals, with their numbers.
    """

    def __init__(self, rank: Callable[[str, str], int | None], propose: Callable[[str, int], str | DragRayError | None]) -> None:
        self._rank, self._propose = rank, propose
        self.asked: list[tuple[str, list[str]]] = []
        self.requests: list[tuple[str, int]] = []

    @property
    def num_rollouts(self) -> int:
        return sum(len(ids) for _, ids in self.asked)

    def roll_out(self, instructions: str, questions: Sequence[Question]) -> list[Outcome]:
        self.asked.append((instructions, [question.id for question in questions]))
        return [self._run(instructions, question) for question in questions]

    def write(self, request: str, number: int) -> str | None:
        self.requests.append((request, number))
        reply = self._propose(request, number)
        if isinstance(reply, DragRayError):
            raise reply
        return reply

    def _run(self, instructions: str, question: Question) -> Outcome:
        rank = self._rank(instructions, question.id)
        search = build_search("340 rpm", rank)
        return build_outcome(build_trajectory(search, question=question, query_mode="expand", **asked_at(4)), "a page")


def rank_by_length(instructions: str, question_id: str) -> int | None:
    """The more words the better, down to rank 1."""
    return max(1, 5 - len(instructions.split()))


def add_word(request: str, number: int) -> str:
    """The instructions of the request with one word more."""
    own = request.split("```")[1].strip()
    return f"Here they are:\n```\n{own} word{number}\n```"
