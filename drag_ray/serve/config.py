"""Options of the serve stage. The engine's own are those of `engine`; `agent` is how models are asked that do not say."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr, field_validator, model_validator

from drag_ray.agent.config import AgentConfig
from drag_ray.cluster.telemetry import TelemetryConfig
from drag_ray.config import BaseConfig, Sections
from drag_ray.engine.config import EngineConfig
from drag_ray.errors import ConfigError
from drag_ray.feedback.config import FeedbackConfig, TrialConfig
from drag_ray.search.config import RerankConfig, RetrievalName

AUTO = "auto"
ADAPTER_NAME = r"[A-Za-z0-9][\w.-]*"
_ADAPTER = re.compile(ADAPTER_NAME + "=.+")
QUESTION_ALONE = "question"
"""What requests name as the model where none is to write a search."""
CHAMPION = "champion"
"""What requests name as the model for what answers where none is named."""
TAKEN_NAMES = (QUESTION_ALONE, CHAMPION)
_TAKEN = f"{QUESTION_ALONE!r} is what requests call a search without a model, and {CHAMPION!r} the champion; choose another name"


class ServedRerankConfig(RerankConfig):
    """The order in which an endpoint shows pages: that of a model that reads them, of features, or of both."""

    features: Path | None = None
    """folder of an evaluation that learned the baseline `features`, which then reorders pages, alone or combined with the model's
    scores"""


class ServeConfig(BaseConfig):
    """One OpenAI-compatible endpoint for the base model and its adapters."""

    host: str = "127.0.0.1"
    """address to listen on; 0.0.0.0 lets other machines in, which needs a key"""
    port: int = Field(default=8000, ge=1, le=65535)
    """port to listen on"""
    served_name: str = Field(default="base", min_length=1)
    """name of the base model in requests"""
    adapters: tuple[str, ...] = ()
    """adapters as name=folder; when empty, the adapter of this run's finetune stage is served as `tuned`"""
    evaluation: Path | None = None
    """folder of a finished evaluation that chose question weights (evaluate.question_weights); the endpoint uses them for models
    of the same name"""
    adapter_dirs: tuple[Path, ...] = ()
    """folders from which adapters may be loaded while the endpoint runs (`/v1/load_lora_adapter`); empty allows none"""
    api_key: SecretStr = SecretStr("")
    """key that requests must carry, given by the environment variable DRAG_RAY_API_KEY or in the file serve.api_key_file"""
    api_key_file: Path | None = None
    """file that holds the key, or several keys with the groups of documents that each may see (docs/security.md); only its owner
    may have access"""
    index_check_s: float = Field(default=5, ge=0)
    """seconds between checks for a newer index of the run, which replaces the current one without a restart; 0 never checks"""
    max_body_mib: float = Field(default=32, gt=0)
    """largest request, in MiB; page images are part of it"""
    max_tokens: int = Field(default=8192, ge=1)
    """longest reply, in tokens"""
    max_question_chars: int = Field(default=4096, ge=1)
    """longest question to search or ask for, in characters"""
    max_reply_s: float = Field(default=30, gt=0)
    """seconds for each reply to a search or a question, after which the request is refused (504). A question can be written so
    that a model continues to agent.max_tokens"""
    max_sequences: int = Field(default=64, ge=1)
    """replies to one request: its prompts times its `n`"""
    grammars: bool = True
    """allow requests to constrain replies to a schema, a pattern or a grammar (`response_format`, `structured_outputs`, required
    tool calls). An expensive one can take an engine seconds at each token and delays all others"""
    retrieval: RetrievalName = "bm25"
    """search where a request does not name one; dense and hybrid need the index stage's embedding.model"""
    rerank: ServedRerankConfig = Field(
        default=ServedRerankConfig(), description="reranking of the pages that searches find, if a model or features are named"
    )
    feedback: FeedbackConfig = Field(
        default=FeedbackConfig(), description="what is kept of searches, and of what people say about them; nothing by default"
    )
    trial: TrialConfig = Field(
        default=TrialConfig(), description="what is tried on real requests against what answers them; nothing by default"
    )
    page: bool = True
    """a page for people at `/`, to search and ask in a browser; it asks for the key where there is one"""
    max_queued_requests: int = Field(default=256, ge=1)
    """requests that wait for each engine, after it has taken four times engine.max_num_seqs; further ones get 429"""
    max_wait_s: float = Field(default=30, gt=0)
    """seconds that a request waits for an engine; then it gets 503"""
    num_replicas: int = Field(default=1, ge=0)
    """engines behind the endpoint, each with all adapters. 0, with max_replicas: none while there are no requests; the first
    request gets 503 and starts one"""
    max_replicas: int = Field(default=0, ge=0)
    """largest number of engines: above num_replicas, Ray Serve starts and ends engines with the load; 0 keeps num_replicas"""
    target_ongoing_requests: float = Field(default=0, ge=0)
    """target number of requests per engine for autoscaling; 0 uses engine.max_num_seqs"""
    upscale_delay_s: float = Field(default=30, ge=0)
    """seconds of a higher load before another engine starts"""
    downscale_delay_s: float = Field(default=600, ge=0)
    """seconds of a lower load before an engine ends"""
    tool_call_parser: str = AUTO
    """vLLM's parser of tool calls, for chats with tools; auto takes that of the model's family, or of adapters that were
    trained to call functions, and none for an unknown family; empty for none"""
    reasoning_parser: str = AUTO
    """vLLM's parser of reasoning; auto takes that of the model's family, if model and adapters reason; empty for none"""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """where the engines run; auto takes GPUs if the cluster has one when the stage starts"""
    adapter_places: int = Field(default=4, ge=1)
    """adapters that an engine uses at the same time, with adapter_dirs; requests for others wait. On a CPU this also limits the
    number that can be loaded"""
    max_lora_rank: int = Field(default=0, ge=0)
    """highest rank of an adapter; 0 takes the highest of the given adapters, at least 16"""

    @field_validator("served_name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name in TAKEN_NAMES:
            raise ValueError(_TAKEN)
        return name

    @field_validator("adapters")
    @classmethod
    def _check_adapters(cls, adapters: tuple[str, ...]) -> tuple[str, ...]:
        for adapter in adapters:
            if not _ADAPTER.fullmatch(adapter):
                raise ValueError(f"{adapter!r} is not name=folder, for example tuned=runs/demo/finetune/adapter")
        names = [adapter.partition("=")[0] for adapter in adapters]
        if set(names) & set(TAKEN_NAMES):
            raise ValueError(_TAKEN)
        if len(set(names)) < len(names):
            raise ValueError(f"an adapter name is given twice: {', '.join(names)}")
        return adapters

    @model_validator(mode="after")
    def _check_trial(self) -> "ServeConfig":
        if self.trial.challenger and not self.feedback.enabled:
            raise ValueError("trial.challenger needs feedback.enabled: what people open and mark decides the trial")
        return self

    @model_validator(mode="after")
    def _check_replicas(self) -> "ServeConfig":
        if not self.num_replicas and not self.max_replicas:
            raise ValueError("num_replicas 0 needs max_replicas: how many engines there may be when requests come")
        if 0 < self.max_replicas < self.num_replicas:
            raise ValueError(
                f"max_replicas {self.max_replicas} is below num_replicas {self.num_replicas}; it must be at least as large, or 0"
            )
        return self


@dataclass(frozen=True)
class ServeSections(Sections):
    """Option sections of the serve stage."""

    agent: AgentConfig
    engine: EngineConfig
    serve: ServeConfig
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)

    def check(self) -> None:
        """Refuse to serve what is served already. Raises ConfigError: the model is behind an endpoint."""
        if self.engine.backend == "openai":
            raise ConfigError(
                f"engine.backend openai: {self.engine.model!r} is served at {self.engine.endpoint.address} already. Set "
                "engine.backend to vllm, and engine.model to weights."
            )
