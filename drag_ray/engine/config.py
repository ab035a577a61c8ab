"""Options of the generation engine."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from drag_ray.config import BaseConfig, VariableName
from drag_ray.storage.object_store import NameOrUri


class EndpointConfig(BaseConfig):
    """Address, limits, prices and budget of an OpenAI-compatible endpoint."""

    address: str = ""
    """base address of the endpoint, for example https://api.openai.com/v1"""
    key_variable: VariableName = ""
    """name of the environment variable that holds the key, in every process that sends requests; empty: no key. The key itself
    belongs in no option and in no file"""
    max_requests: int = Field(default=16, ge=1)
    """concurrent requests of each engine"""
    requests_per_minute: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """requests that each engine starts in a minute, repeated ones included, evenly spread; 0: no limit"""
    tokens_per_minute: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """tokens that each engine reads and writes in a minute; beyond it no request is started, while running ones continue; 0:
    no limit"""
    max_retries: int = Field(default=6, ge=0)
    """repetitions of a request after a 429, a 5xx or a lost connection: after the time in Retry-After, up to two minutes,
    otherwise at growing intervals"""
    timeout_s: float = Field(default=600.0, gt=0)
    """seconds for a whole answer; a slower request fails and is not repeated"""
    prompt_price: float = Field(default=0.0, ge=0)
    """price of a million prompt tokens, in any currency; 0: unknown"""
    completion_price: float = Field(default=0.0, ge=0)
    """price of a million completion tokens; 0: unknown"""
    budget: float = Field(default=0.0, ge=0)
    """largest cost of a stage's rollouts, in the currency of the prices; 0: no limit. When it is spent, no request is started;
    running ones are paid for too. The same command with a larger budget continues"""
    omits: tuple[str, ...] = ()
    """parameters that this endpoint refuses and that requests leave out: temperature, top_p, max_tokens, seed, stop or
    repetition_penalty"""
    parameters: dict[str, Any] = Field(default_factory=dict)
    """further parameters of every request, for example {"reasoning_effort": "low"}"""

    @property
    def has_prices(self) -> bool:
        """True if the price of tokens is known."""
        return self.prompt_price > 0 or self.completion_price > 0

    def compute_cost(self, num_prompt_tokens: int, num_completion_tokens: int) -> float:
        """Cost of so many tokens, in the currency of the prices."""
        return (num_prompt_tokens * self.prompt_price + num_completion_tokens * self.completion_price) / 1e6

    @model_validator(mode="after")
    def _can_tell_what_is_spent(self) -> "EndpointConfig":
        if self.budget and not self.has_prices:
            raise ValueError("a budget needs prices: set prompt_price and completion_price")
        return self

    @model_serializer(mode="wrap")
    def _leave_out_terms(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """The options as a run's identity and its records have them: who is asked what, not at which terms."""
        options: dict[str, Any] = serialize(self)
        return {name: options[name] for name in ("address", "omits", "parameters")}


class EngineConfig(BaseConfig):
    """The model that writes, and the resources that it takes. Names and meanings are vLLM's where vLLM has them."""

    backend: Literal["vllm", "openai"] = "vllm"
    """vllm: vLLM on this machine or cluster; openai: the OpenAI-compatible endpoint of engine.endpoint, which knows `model` by
    name. An endpoint needs no GPU, accepts no adapter, and returns neither token ids nor log-probabilities"""
    endpoint: EndpointConfig = EndpointConfig()
    """the endpoint, with the backend openai"""
    model: NameOrUri = "embedded"
    """`embedded` (SmolLM2-135M-Instruct, shipped in a package), a Hugging Face name, or a model folder; also one in an object
    store (s3://, gs://, abfs://, hdfs://), which each machine copies once to its cache ($XDG_CACHE_HOME/drag_ray)"""
    adapter: str = ""
    """folder of a LoRA adapter that the model writes with; empty for none"""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """number format of the weights; auto is the model's own on GPUs, bfloat16 on CPUs that have instructions for it (AVX-512
    BF16, AMX, Arm's bf16), and float32 on others, where it is faster"""
    max_model_len: int = Field(default=8192, ge=64)
    """context length in tokens, prompt and reply together"""
    max_num_seqs: int = Field(default=256, ge=1)
    """sequences that the engine decodes at the same time; rollout.concurrent_rollouts beyond it wait"""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """where engines run; auto takes GPUs if the cluster has one when the stage starts, gpu waits for a cluster that grows"""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """GPUs that share one engine"""
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)
    """share of a GPU's memory that the engine takes"""
    cpu_kv_cache_gib: int = Field(default=1, ge=1)
    """KV cache on a machine without a GPU, in GiB"""
    cpu_threads: int = Field(default=0, ge=0)
    """threads of an engine on a machine without a GPU; 0 takes one for each core, divided among the engines of a collection or
    an evaluation on that machine"""
    max_lora_rank: int = Field(default=64, ge=1)
    """largest rank of an adapter"""
    image_cache_gib: float = Field(default=8, gt=0)
    """main memory for processed page images, in GiB; a page of 960 x 1280 pixels takes 15 MB. It must hold the images of one
    prompt"""
    encoder_cache_gib: float = Field(default=4, ge=0)
    """GPU memory for a cache of encoded page images, within gpu_memory_utilization, in GiB; a page of 960 x 1280 pixels takes 39
    MB with Qwen3-VL-8B"""
    load_format: str = "auto"
    """`dummy` makes random weights, for speed tests only"""
    logprobs: bool = True
    """keep the engine's log-probability of each written token; training here computes its own. For a small model on a fast GPU
    that costs a third of the speed"""
    seeds: bool = True
    """sample each reply with the seed of its rollout, so that a run can be repeated; vLLM samples such replies one by one,
    which costs an 8B model 2 % of its speed on a GPU and a small one a quarter"""
    enforce_eager: bool = False
    """skip torch.compile and CUDA graphs: starts sooner, runs slower"""

    @model_validator(mode="after")
    def _knows_its_endpoint(self) -> "EngineConfig":
        if self.backend == "openai" and not self.endpoint.address.startswith(("http://", "https://")):
            raise ValueError(
                "the backend openai needs the address of its endpoint, http:// or https://: set endpoint.address, and model to a "
                "name that it knows"
            )
        if self.backend == "openai" and self.adapter:
            raise ValueError("an endpoint takes no adapter: leave adapter empty, or serve the adapter there under its own name")
        return self

    def list_sources(self) -> dict[str, Path]:
        """The adapter, by the option that names it."""
        return {"engine.adapter": Path(self.adapter)} if self.adapter else {}
