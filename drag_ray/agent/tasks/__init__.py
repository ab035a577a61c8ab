"""What a rollout is for, one module a task: how it opens, what a reply leads to, when it ends, and what it is measured by.

`task.load_task` gives the task of a name.
"""

from typing import TYPE_CHECKING, Literal

TASKS = ("find_page", "rerank", "answer")
"""The tasks. What each is, its module says."""

if TYPE_CHECKING:
    TaskName = str
else:
    TaskName = Literal[TASKS]
