"""Rewards by a function of the user's, which `process.reward` names as `package.module:function`.

It is given a `Rollout` and returns a number for each of its replies, in their order. These take the place of the rewards of this
package; what becomes of them, the return of a reply and whom it is compared with, is the same (docs/train/rl.md, Credit). Who
has one number for a rollout gives it to the last reply, and 0 to the others: the reward of a rollout is their sum.

    def reward_brevity(rollout: Rollout) -> list[float]:
        return [1 / reply.rank - len(reply.query) / 1000 if reply.rank else 0.0 for reply in rollout.replies]
"""

import inspect
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import polars as pl

from drag_ray.errors import ConfigError
from drag_ray.types import ActionKind, Evidence
from drag_ray.variants import import_own

MARK = ":"
"""Stands between module and function."""
_MOST = 1e30
"""Rewards of this size and beyond are refused: their sums and squares, or they themselves, could be too large for a number."""
_MOST_S = 300.0
_EXPECTED = "Expected a function of one argument, a drag_ray.process.reward_function.Rollout."


@dataclass(frozen=True, slots=True)
class ScoredReply:
    """A reply of the policy, and what it led to.

    Attributes:
        text: word for word.
        action: that was read from it; invalid where none was.
        query: of a search, or the order of candidates; empty otherwise.
        tool: that it called; empty for a search.
        rank: of the best evidence page in what the search found, or in the list after the order, from 1; None without any.
        error: of the search or the tool itself; empty where it ran.
        is_cut: whether it ended at its token limit.
    """

    text: str
    action: ActionKind
    query: str = ""
    tool: str = ""
    rank: int | None = None
    error: str = ""
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class Rollout:
    """A rollout as a reward is computed from it.

    Attributes:
        id: of its trajectory.
        task: `find_page`, `rerank` or `answer`.
        evidence: the pages that count as right.
        answers: that count as right; empty where none is known.
        question_rank: the best evidence page in what the question itself found, or in the list as it was; None without any.
        final_answer: that it ended with; empty without one.
        answer_score: its ANLS*, or what the judge says of it (`process.judge`), in 0..1.
        replies: of the policy, in their order.
    """

    id: str
    question: str
    task: str
    evidence: tuple[Evidence, ...]
    answers: tuple[str, ...]
    question_rank: int | None
    final_answer: str
    answer_score: float
    replies: tuple[ScoredReply, ...]


RewardFunction = Callable[[Rollout], Sequence[float]]


def load_reward_function(name: str) -> RewardFunction:
    """The function that a name says, as Python imports it in this process. Raises ConfigError where the module cannot be
    imported, has changed since, has no such function, or this takes something else than a rollout. `name`: as `process.reward`
    has it, with a mark."""
    place, _, attribute = name.partition(MARK)
    option = f"process.reward {name!r}"
    module = import_own(place, option, "scores rollouts")
    _check_file(module, option)
    function: Any = getattr(module, attribute, None)
    if not callable(function):
        got = "nothing" if function is None else type(function).__name__
        raise ConfigError(f"{option}: {place} has {got} of the name {attribute!r}. {_EXPECTED}")
    try:
        inspect.signature(function).bind(object())
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{option}: it cannot be called with a rollout ({error}). {_EXPECTED}") from None
    if inspect.iscoroutinefunction(function):
        raise ConfigError(f"{option}: it is a coroutine function. {_EXPECTED} Leave out `async`.")
    return cast(RewardFunction, function)


_IMPORTED: dict[str, bytes] = {}
"""The files of modules as they were when this process imported them."""


def _check_file(module: ModuleType, option: str) -> None:
    """Refuse a module whose file is no longer what runs: a stage is known by the file."""
    if not getattr(module, "__file__", None):
        raise ConfigError(f"{option}: {module.__name__} is no file of Python, so a change would go unseen. {_EXPECTED}")
    path = Path(str(module.__file__))
    now = path.read_bytes()
    if _IMPORTED.setdefault(module.__name__, now) != now:
        raise ConfigError(
            f"{option}: {path} has changed since this process imported it. Start the process (a notebook's kernel) again."
        )


def find_reward_source(name: str) -> Path:
    """The file of the module that a function is named in. Raises ConfigError: what `load_reward_function` raises."""
    load_reward_function(name)
    return Path(str(sys.modules[name.partition(MARK)[0]].__file__))


def compute_rewards(trajectories: pl.DataFrame, name: str) -> pl.Series:
    """The rewards of all replies, in the order of trajectories and steps. Raises ConfigError where the function cannot be had,
    has raised something, or returned what is not a number for each reply; names the trajectory."""
    function = load_reward_function(name)
    asked = (rollout for rollout in _read_rollouts(trajectories) if rollout.replies)
    rewards = [reward for rollout in asked for reward in _ask(function, name, rollout)]
    return pl.Series("reward", rewards, dtype=pl.Float64)


def _ask(function: RewardFunction, name: str, rollout: Rollout) -> list[float]:
    place = f"process.reward {name!r}: trajectory {rollout.id!r}"
    try:
        with _limit_time():
            returned: Any = function(rollout)
    except (Exception, SystemExit) as error:  # whatever a user's function does
        raise ConfigError(
            f"{place}: it raised {type(error).__name__}: {error}. Have it return a number for each reply of any rollout."
        ) from error
    number = len(rollout.replies)
    expected = f"expected {number} finite number(s), one for each reply"
    if isinstance(returned, str | bytes | Mapping | Set) or not hasattr(returned, "__len__") or not hasattr(returned, "__iter__"):
        raise ConfigError(f"{place}: it returned {type(returned).__name__} {returned!r:.60}, {expected}. Return a list.")
    if len(returned) != number:
        raise ConfigError(f"{place}: it returned {len(returned)} value(s), {expected}. Give 0 to what earns nothing.")
    for step, value in enumerate(returned, start=1):
        if not isinstance(value, Real) or not cast(Any, abs(value)) < _MOST:  # NaN too
            raise ConfigError(
                f"{place}: for reply {step} it returned {type(value).__name__} {value!r:.60}, {expected}. Give 0 to what earns "
                "nothing."
            )
    return [float(value) for value in returned]


@contextmanager
def _limit_time() -> Generator[None]:
    """Raise TimeoutError in what takes too long, in the main thread, as nothing else can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise TimeoutError(f"it took longer than {_MOST_S:g} s for a rollout")

    earlier, (left, _) = signal.signal(signal.SIGALRM, stop), signal.setitimer(signal.ITIMER_REAL, _MOST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left)
        signal.signal(signal.SIGALRM, earlier)


def _read_rollouts(trajectories: pl.DataFrame) -> Iterator[Rollout]:
    turn = pl.element().struct
    read = ("action", "query", "tool", "evidence_rank", "error", "tool_error", "finish_reason")
    columns = ("trajectory_id", "question", "task", "answers", "question_rank", "final_answer", "answer_reward")
    turns = pl.col("turns").list.eval(pl.struct(*(turn.field(name) for name in read)))
    for row in trajectories.select(*columns, "evidence", "replies", turns).iter_rows(named=True):
        replies = (
            ScoredReply(
                text=text,
                action=ActionKind(of_turn["action"]),
                query=of_turn["query"],
                tool=of_turn["tool"],
                rank=of_turn["evidence_rank"],
                error=of_turn["error"] or of_turn["tool_error"],
                is_cut=of_turn["finish_reason"] == "length",
            )
            for text, of_turn in zip(row["replies"], row["turns"], strict=True)
        )
        yield Rollout(
            id=row["trajectory_id"],
            question=row["question"],
            task=row["task"],
            evidence=tuple(Evidence(page["file"], page["page_number"]) for page in row["evidence"]),
            answers=tuple(row["answers"]),
            question_rank=row["question_rank"],
            final_answer=row["final_answer"],
            answer_score=row["answer_reward"],
            replies=tuple(replies),
        )
