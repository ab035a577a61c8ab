"""Options of the search agent. Collection, training, serving and evaluation share them: one prompt, one action format."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from drag_ray.agent import tasks
from drag_ray.agent.keywords import WordsName
from drag_ray.agent.protocols.registry import PROTOCOLS, ProtocolName, get_protocol
from drag_ray.agent.tasks import ORDERING, SEARCHING, TaskName
from drag_ray.config import BaseConfig
from drag_ray.errors import ConfigError
from drag_ray.search.config import RetrievalName
from drag_ray.tools.config import (
    McpServerConfig,
    PythonInterpreterConfig,
    SuperResolutionConfig,
    ToolOptions,
    VisitConfig,
    WebSearchConfig,
)
from drag_ray.tools.registry import Toolset, find_source, load_toolset
from drag_ray.variants import load_variant


class Example(BaseConfig):
    """A question and a good query for it, shown to the model before its own question."""

    question: str
    query: str
    """in the mode `expand` the best addition to the question; empty for nothing"""


class PromptSet(BaseConfig):
    """Another way to ask the model the same: other instructions or examples than the agent's own."""

    instructions: str = ""
    """replaces the first paragraph of the system prompt; empty for the agent's own"""
    examples: tuple[Example, ...] = ()
    """replaces the agent's examples"""


class RerankOptions(BaseConfig):
    """The windows in which candidates are put in order, the last ones first."""

    candidates: int = Field(default=50, ge=2)
    """first candidates of a list that are ordered; the others keep their places behind them"""
    window: int = Field(default=20, ge=2)
    """candidates that are shown at once; equal to `candidates` to show all at once"""
    step: int = Field(default=10, ge=1)
    """candidates by which each window is nearer to the front than the previous one"""

    @model_validator(mode="after")
    def _leaves_no_gap(self) -> "RerankOptions":
        if self.step >= self.window:
            raise ValueError(
                f"step is {self.step}, which must be less than window ({self.window}), or nothing climbs to the front"
            )
        return self


class AgentConfig(BaseConfig):
    """Options of the agent: what it is told, what it sees and how long it may go on."""

    task: TaskName = "find_page"
    """task of the model; find_page: find the page that answers a question; rerank: order the candidates of the question or of the
    index; answer: answer a question with tools"""
    rerank: RerankOptions = RerankOptions()
    """windows of the task rerank"""
    protocol: ProtocolName = Field(
        default="tags",
        description="form of actions; " + "; ".join(f"{protocol.name}: {protocol.summary}" for protocol in PROTOCOLS.values()),
    )
    query_mode: Literal["rewrite", "expand"] = "expand"
    """what the model writes; rewrite: the whole query; expand: words that are searched together with the question, each with
    an optional weight (as in prognosis^2), or nothing, which finds what the question finds"""
    question_weight: float = Field(default=2.0, gt=0, le=100)
    """expand: weight of a word of the question relative to an added one"""
    question_words: WordsName = "key"
    """in the mode `expand`, words of the question that are searched and by which gains are measured; key: without English stop
    words; all: every word, if questions are sentences of the pages"""
    max_iterations: int = Field(default=1, ge=1)
    """largest number of model replies in a rollout. If it is above 1, the prompt of the last reply asks for the answer (in the
    task rerank for the order of the window)"""
    retrieval: RetrievalName = "bm25"
    """search for the model's queries and for the question that they are compared with: words (bm25), the vectors of the index
    (dense; embedding.model), or both (hybrid)"""
    dense_weight: float | None = Field(default=None, ge=0.0, le=1.0)
    """hybrid, for this agent, baselines and endpoints: weight of the vector score; the word score has the rest, both
    standardised. Without it rankings are fused by rank. The stage `tune` names the best weight"""
    top_k: int = Field(default=3, ge=1)
    """pages shown after a search"""
    depth: int = Field(default=10, ge=1)
    """recorded ranks of each search, for evaluation; at least top_k"""
    page_view: Literal["text", "image"] = "text"
    """form in which pages are shown to the model: text or image (needs corpus.page_images)"""
    image_searches: int = Field(default=0, ge=0)
    """latest searches and calls whose images stay in the prompt; 0 keeps all. Of older images only the names stay; images of the
    question always stay"""
    text_searches: int = Field(default=0, ge=0)
    """latest searches and calls whose text stays in the prompt; 0 keeps all. Of older texts only the lines that name pages, or
    the first line, stay"""
    max_images: int = Field(default=8, ge=1)
    """images that tools may return in a rollout; a call that would return more fails"""
    page_chars: int = Field(default=2000, ge=1)
    """characters of a page's text that are shown"""
    max_tokens: int = Field(default=4096, ge=1)
    """tokens of one reply"""
    tools: tuple[str, ...] = ("search",)
    """tools that the model can call; `search` is required except in the task rerank, which does not search. Other tools need
    the protocol tools, unless the task has its own, and several iterations. Names are those of shipped tools (docs/tools.md),
    of tool_modules and of mcp_servers"""
    tool_modules: tuple[str, ...] = ()
    """Python modules of your own that declare a tool each; they must be importable in every process that calls the tool"""
    mcp_servers: tuple[McpServerConfig, ...] = ()
    """servers of the Model Context Protocol; an agent has a server's tools if its tools name the server"""
    tool_timeout_s: float = Field(default=30.0, gt=0)
    """seconds after which a tool call fails"""
    observation_chars: int = Field(default=8000, ge=100)
    """characters that are shown of a tool's result, from its beginning; page_chars limits pages of a search"""
    python_interpreter: PythonInterpreterConfig = PythonInterpreterConfig()
    """limits of the tool of that name"""
    super_resolution: SuperResolutionConfig = SuperResolutionConfig()
    """the model of the tool of that name"""
    visit: VisitConfig = VisitConfig()
    """what the tool of that name may reach"""
    web_search: WebSearchConfig = WebSearchConfig()
    """the endpoint of the tool of that name"""
    max_tool_errors: int = Field(default=3, ge=0)
    """failed tool calls in a row that end a rollout; 0: no limit"""
    forced_calls: bool = False
    """force every reply to be one valid call, for a model that does not call tools by itself; needs the protocol tools and no
    thinking. It changes the model's distribution"""
    thinking: bool = True
    """invite the model to think before it acts"""
    instructions: str = ""
    """replacement of the first paragraph of the system prompt, which describes the task without the action format"""
    examples: tuple[Example, ...] = ()
    """questions with good queries, shown as earlier turns of the conversation; a small model needs a few of them"""

    @model_validator(mode="after")
    def _depth_covers_top_k(self) -> "AgentConfig":
        if self.depth < self.top_k:
            raise ValueError(f"depth {self.depth} is below top_k {self.top_k}; it must be at least as large")
        return self

    @model_validator(mode="after")
    def _fits_its_task(self) -> "AgentConfig":
        load_variant(tasks, self.task).TASK.check(self)
        return self

    @model_validator(mode="after")
    def _tools_can_be_called(self) -> "AgentConfig":
        if "search" not in self.tools and self.task not in ORDERING:
            raise ValueError("tools lacks search, by which a rollout is measured; name it too")
        if twice := sorted({name for name in self.tools if self.tools.count(name) > 1}):
            raise ValueError(f"tools names {', '.join(twice)} twice")
        if self.called_tools and not get_protocol(self.protocol_name).shows_functions:
            raise ValueError(f"the protocol {self.protocol} knows no tools but search; set protocol to tools")
        if self.called_tools and self.max_iterations == 1:
            raise ValueError(
                "with max_iterations 1 no reply could use the result of a tool; raise it, or set tools to search only"
            )
        return self

    @model_validator(mode="after")
    def _calls_can_be_forced(self) -> "AgentConfig":
        if self.forced_calls and not get_protocol(self.protocol_name).shows_functions:
            raise ValueError(f"forced_calls: the protocol {self.protocol_name} has no calls; set protocol to tools")
        if self.forced_calls and self.thinking:
            raise ValueError("forced_calls leaves no room for thoughts; set thinking to false")
        return self

    @model_serializer(mode="wrap")
    def _leave_out_unused(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The options as a run's identity and its records have them: those of tools that the agent lacks count as unset."""
        of_tools = (name for name in ToolOptions.__dataclass_fields__ if name not in self.tools)
        unset = {name: AgentConfig.model_fields[name].default for name in of_tools}
        servers = tuple(server for server in self.mcp_servers if server.name in self.tools)
        return serialize(self.model_copy(update={**unset, "mcp_servers": servers}))

    def load_tools(self) -> Toolset:
        """The tools, in this process. Raises ConfigError where one of them cannot be had."""
        options = ToolOptions(self.python_interpreter, self.super_resolution, self.visit, self.web_search)
        return load_toolset(self.tools, self.tool_modules, self.mcp_servers, options)

    def list_tool_sources(self) -> list[Path]:
        """The files of the modules that declare the user's tools, and of the model that one of ours runs. Raises ConfigError
        where one cannot be imported, or declares no tool; or the model is not there."""
        model = self.super_resolution.model if "super_resolution" in self.tools else ""
        if model and not Path(model).is_file():
            raise ConfigError(f"agent.super_resolution.model {model!r}: no such file.")
        return [*map(find_source, self.tool_modules), *([Path(model)] if model else [])]

    @property
    def called_tools(self) -> tuple[str, ...]:
        """The names in `tools` besides `search`."""
        return tuple(name for name in self.tools if name != "search")

    @property
    def expands(self) -> bool:
        """True if the model writes additions to the question."""
        return self.query_mode == "expand" and self.task in SEARCHING

    @property
    def protocol_name(self) -> str:
        """The protocol of replies: as the task has it, or else as the option says."""
        return load_variant(tasks, self.task).TASK.protocol or self.protocol

    def ask_with(self, prompt_set: PromptSet) -> "AgentConfig":
        """The same agent with another opening."""
        return self.instruct(prompt_set.instructions).model_copy(update={"examples": prompt_set.examples})

    def instruct(self, instructions: str) -> "AgentConfig":
        """The same agent with other instructions, if there are any."""
        return self.model_copy(update={"instructions": instructions or self.instructions})
