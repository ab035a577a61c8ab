"""Options of the serve stage. The engine's own options are those of the section `engine`."""

import re
from typing import Literal

from pydantic import Field, field_validator

from drag_ray.config import BaseConfig

_ADAPTER = re.compile(r"[A-Za-z0-9][\w.-]*=.+")


class ServeConfig(BaseConfig):
    """One OpenAI-compatible endpoint for the base model and its adapters."""

    host: str = "127.0.0.1"
    """address to listen on; 0.0.0.0 lets other machines in"""
    port: int = Field(default=8000, ge=1, le=65535)
    """port to listen on"""
    served_name: str = Field(default="base", min_length=1)
    """name of the base model in requests"""
    adapters: tuple[str, ...] = ()
    """adapters as name=folder; when empty, the adapter of this run's finetune stage is served as `tuned`"""
    api_key: str = ""
    """key that requests must carry; empty asks for none"""
    num_replicas: int = Field(default=1, ge=1)
    """engines behind the endpoint; adapters can be loaded while it runs only where there is one"""
    device: Literal["auto", "cpu", "gpu"] = "auto"
    """where the engines run; auto takes GPUs if the cluster has one when the stage starts"""
    max_lora_rank: int = Field(default=0, ge=0)
    """highest rank of an adapter; 0 takes that of the adapters given, at least 16"""
    ready_timeout_s: float = Field(default=600.0, gt=0)
    """seconds to wait until the endpoint answers"""

    @field_validator("adapters")
    @classmethod
    def _check_adapters(cls, adapters: tuple[str, ...]) -> tuple[str, ...]:
        for adapter in adapters:
            if not _ADAPTER.fullmatch(adapter):
                raise ValueError(f"{adapter!r} is not name=folder, for example tuned=runs/demo/finetune/adapter")
        names = [adapter.partition("=")[0] for adapter in adapters]
        if len(set(names)) < len(names):
            raise ValueError(f"an adapter name is given twice: {', '.join(names)}")
        return adapters
