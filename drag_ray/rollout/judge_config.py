"""Options of a judge, whichever stage asks it."""

from pathlib import Path

from pydantic import Field

from drag_ray.config import BaseConfig
from drag_ray.engine.config import EngineConfig


class JudgeConfig(BaseConfig):
    """A model that says whether an answer means what a gold answer means, where the letters differ."""

    enabled: bool = False
    """have the answers of questions that have gold answers judged: evaluate tells semantic accuracy beside ANLS*, process takes
    what the judge says in the place of ANLS*"""
    engine: EngineConfig = EngineConfig()
    """the engine of the judge, as the section `engine`: an endpoint, or a local model, which takes a GPU if there is one"""
    max_tokens: int = Field(default=1024, ge=16)
    """tokens of a verdict, with the reasoning before it"""

    def list_sources(self) -> dict[str, Path]:
        """The adapter of a judge that is asked."""
        return {"judge.engine.adapter": Path(self.engine.adapter)} if self.enabled and self.engine.adapter else {}
