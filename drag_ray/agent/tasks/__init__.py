"""Tasks, one module each: how a rollout opens, what a reply leads to, when it ends, and what it is measured by.

`TASKS` says of each what others have to know of it, `task.load_task` gives the rest. A new task is a module and a line here.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal


@dataclass(frozen=True, slots=True)
class TaskKind:
    """The kind of a task's rollouts, for those that read them.

    Attributes:
        scored_by: what success and reward are computed from: the ranks of the evidence, or the answer.
        orders: whether replies put candidates in order: their queries are orders, and nothing is searched.
    """

    scored_by: Literal["ranking", "answer"] = "ranking"
    orders: bool = False


TASKS = {"find_page": TaskKind(), "rerank": TaskKind(orders=True), "answer": TaskKind(scored_by="answer")}
"""The tasks by their names, of which the first is the default."""
ELSEWHERE = {"rerank": "recipes.v_retrver.task"}
ORDERING = tuple(name for name, kind in TASKS.items() if kind.orders)
ANSWERING = tuple(name for name, kind in TASKS.items() if kind.scored_by == "answer")
SEARCHING = tuple(name for name in TASKS if name not in ORDERING + ANSWERING)
"""Those whose rollouts are measured by their own searches."""

if TYPE_CHECKING:
    TaskName = str
else:
    TaskName = Literal[tuple(TASKS)]
