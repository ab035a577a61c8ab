"""Answer a question with the help of tools; the answer is what counts, whatever was found on the way."""

from drag_ray.agent.config import AgentConfig
from drag_ray.agent.tasks.find_page import ask, begin, count_shown
from drag_ray.agent.tasks.task import Task

INSTRUCTIONS = (
    "You answer questions. What you need to know is in a collection of documents and in the pictures that you are shown. "
    "Look it up with your tools, one call at a time, until you are certain. Then give an answer that is as short as it can be: "
    "a name, a number or a few words."
)


def check(config: AgentConfig) -> None:
    """ValueError unless a reply may be an answer."""
    if config.max_iterations == 1:
        raise ValueError("the task answer needs several replies, the last one for the answer; raise max_iterations")


TASK = Task(
    summary="answer a question, which is compared with the known answers",
    ask=ask,
    begin=begin,
    choose_instructions=lambda config: INSTRUCTIONS,
    choose_wanted=lambda config: "words to search for",
    check=check,
    count_shown=count_shown,
)
