"""Options of the process stage."""

from pydantic import Field

from drag_ray.config import BaseConfig


class ProcessConfig(BaseConfig):
    """How trajectories are scored."""

    top_k: int = Field(default=0, ge=0)
    """pages that a search must bring an evidence page among to count as a success; 0 takes the number that the policy was shown"""
