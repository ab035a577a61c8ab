"""Options of the process stage."""

from pydantic import Field

from drag_ray.config import BaseConfig


class ProcessConfig(BaseConfig):
    """How trajectories are scored."""

    top_k: int = Field(default=0, ge=0)
    """a search succeeds with an evidence page among this many first pages; 0 takes the number that the policy was shown"""
