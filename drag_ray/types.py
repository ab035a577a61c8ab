"""The records that cross stages, and the words of this project.

A *question* is the user's need; a *query* is what the policy writes.  A *trajectory* is the record
of one rollout; a *turn* is one model reply and what it led to.  A *page* is (file, page_number) with
page_number counted from 1; the *evidence* of a question is every page that counts as right.
A *hit* is a page with its rank and its retrieval score.  *top_k* pages are shown to the policy;
the *depth* (at least top_k) is how far the ranking is recorded for evaluation.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True)
class Evidence:
    """One page that counts as right: its file and its 1-based page number."""

    file: str
    page_number: int


CAPTION = "caption"
"""The source of a text that belongs beside the picture of its page."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a document.

    `text_source` says where its text came from: `text_layer` (of a PDF), `ocr`, `text`, `jsonl`, `caption` (said of its picture
    and not read off it, so that it is shown beside it), or what a page table names.
    `image` is the key of its picture in the store of page images, empty if there is none.
    """

    file: str
    page_number: int
    total_pages: int
    text: str
    text_source: str = "text_layer"
    image: str = ""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with every page that answers it.

    `group` ties questions that must stay on the same side of a split (one document, one module family);
    `split` is `train` or `test`, or empty before the split is made. `images` are the keys of the pictures that it is
    asked about, in the store of question images. `candidates` are pages in an order that is to be improved (task `rerank`);
    without any they are what the index finds.
    """

    id: str
    question: str
    evidence: tuple[Evidence, ...]
    answers: tuple[str, ...] = ()
    category: str = ""
    group: str = ""
    split: str = ""
    images: tuple[str, ...] = ()
    candidates: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Hit:
    """A retrieved page: 1-based rank and retrieval score, of BM25 unless another search found it."""

    file: str
    page_number: int
    rank: int
    score: float

    @property
    def page(self) -> Evidence:
        """The page by its name, without its place in a ranking."""
        return Evidence(self.file, self.page_number)


class Found(list[_Item]):
    """The pages that a query finds, best first.

    Attributes:
        is_partial: parts of the query would have cost more than a query may (`search.max_query_ms`), and were left out.
    """

    def __init__(self, items: Iterable[_Item] = (), is_partial: bool = False) -> None:
        super().__init__(items)
        self.is_partial = is_partial


class Hits(Found[Hit]):
    """The pages that a query finds."""


class ActionKind(StrEnum):
    """The kind of action that one reply asks for."""

    SEARCH = "search"
    """Ask for a ranking: run a query, or put candidates in order."""
    ANSWER = "answer"
    """End the rollout with an answer."""
    TOOL = "tool"
    """Call a tool."""
    INVALID = "invalid"
    """Neither could be read from the reply; the policy gets a format reminder."""


class StopReason(StrEnum):
    """The reason why a rollout ended."""

    ANSWER = "answer"
    """The policy gave an answer."""
    MAX_ITERATIONS = "max_iterations"
    """The last allowed turn passed without an answer, or that after three equal replies."""
    CONTEXT_LENGTH = "context_length"
    """The next prompt would not fit into the model's context; an error too where that is the first one."""
    TOOL_ERRORS = "tool_errors"
    """As many calls of tools in a row failed as `agent.max_tool_errors` says."""
    ERROR = "error"
    """The rollout failed; `Trajectory.error` says how. It is tried again, `rollout.max_tries` times in all."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as the engine saw it: what it read and wrote.

    `completion_logprobs` are the natural logarithms of the probabilities that the policy gave to its tokens, at
    temperature 1; there is one for each of `completion_token_ids`, or none at all if the engine was not asked for them.
    `prompt_digest` is a hash of all that the prompt was to the engine, the tokens and contents of images among it (see
    `compute_prompt_digest`); empty where that is not known.
    `num_prompt_tokens` and `num_completion_tokens` are what the engine read and wrote; of an endpoint, which gives no token ids,
    there is nothing else.  `finish_reason` is `stop` or `length`.
    `hidden_images` are the places, among all images of those messages that were replied to, of the ones that were not in the
    prompt any more, and `hidden_messages` those of messages whose text was left out (see `agent.shown_images`).
    """

    prompt_token_ids: tuple[int, ...] = ()
    completion_token_ids: tuple[int, ...] = ()
    completion_logprobs: tuple[float, ...] = ()
    prompt_digest: str = ""
    num_prompt_tokens: int = 0
    num_completion_tokens: int = 0
    finish_reason: str = "stop"
    generate_s: float = 0.0
    hidden_images: tuple[int, ...] = ()
    hidden_messages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ranking:
    """The ranking of a search or an order, to `depth`; the policy was shown the first `top_k` of its `hits`.

    `evidence_rank` is the best rank of an evidence page within `depth`, None when there is none;
    `rank_score` is 1 for the first place to 1 / top_k for the last, 0 outside (`agent.scores.compute_rank_score`).
    It `is_partial` where the query would have cost more than `search.max_query_ms`, and parts of it were left out.
    """

    hits: tuple[Hit, ...] = ()
    evidence_rank: int | None = None
    rank_score: float = 0.0
    search_s: float = 0.0
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer and the pages that it cites."""

    text: str = ""
    citations: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCall:
    """The call of a tool: its name, the arguments as JSON, what went wrong, empty if nothing did, and how long it ran."""

    tool: str = ""
    arguments: str = ""
    error: str = ""
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """One model reply, the action read from it and what it led to. Times are in seconds.

    The policy replied to the first `num_prompt_messages` messages of the trajectory; its reply is the next one.
    What the action did not lead to is empty, and so are the hits of a search that failed with an `error`.
    """

    step: int
    num_prompt_messages: int
    reasoning: str
    action: ActionKind
    query: str
    raw_text: str
    error: str = ""
    reply: Reply = Reply()
    ranking: Ranking = Ranking()
    answer: Answer = Answer()
    call: ToolCall = ToolCall()


@dataclass(frozen=True, slots=True)
class QuestionSearch:
    """The search of the question itself: the `hits` to `depth`, and the best `rank` of an evidence page among them.

    Both are empty where it was not searched.  With the mode `expand` the turns' queries are what was searched together with the
    question, whose words had this `weight` each: all of them or, where `words` is "key", its key words.
    """

    mode: str = "rewrite"
    weight: float = 1.0
    words: str = "all"
    hits: tuple[Hit, ...] = ()
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a trajectory: who wrote it, and all that it takes to repeat it. `started_at` is ISO 8601 in UTC.

    `baseline` names the baseline that wrote in the policy's place, if one did.  With a `prompt_set` above 0 the policy was asked
    with another opening than that of `messages`. Where several policies are compared, `policy` names that which asked.
    A `hinted` rollout was shown the evidence page with its question. Its `messages` are without the hint; the prompts
    had it, so their token ids, and the log-probabilities given them, are left out. It says nothing of the policy.
    """

    model: str
    adapter: str
    agent_fingerprint: str
    index_fingerprint: str
    preset: str
    sample_index: int
    seed: int
    started_at: str
    baseline: str = ""
    prompt_set: int = 0
    policy: str = ""
    hinted: bool = False


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The record of one rollout: enough to train on it, to audit it and to repeat it.

    `messages` is the whole conversation as JSON, a list of {"role", "content"}.
    `tools` are the functions that the chat template showed to the policy, as JSON, empty where there were none.
    `task` is what was asked of the policy. In the task `rerank` a turn's query is the order of a window, its hits are the whole
    list after it, and those of the `question_search` are the candidates in the order that they had.
    """

    id: str
    question_id: str
    question: str
    evidence: tuple[Evidence, ...]
    answers: tuple[str, ...]
    category: str
    group: str
    split: str
    turns: tuple[Turn, ...]
    messages: str
    protocol: str
    stop_reason: StopReason
    final_answer: Answer
    top_k: int
    depth: int
    duration_s: float
    question_search: QuestionSearch
    provenance: Provenance
    error: str = ""
    tools: str = ""
    task: str = "find_page"
