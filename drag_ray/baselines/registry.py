"""The baselines that there are, and what an evaluation's options say of them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, create_model

from drag_ray.baselines.baseline import Baseline, OptionSections
from drag_ray.baselines.dense import Dense, Hybrid, IndexDense, IndexHybrid
from drag_ray.baselines.features import Features
from drag_ray.baselines.neighbours import Neighbours
from drag_ray.baselines.passages import Hyde, Query2doc
from drag_ray.baselines.question import QuestionKeywords, RawQuestion
from drag_ray.baselines.rerank import Rerank
from drag_ray.baselines.rm3 import Rm3
from drag_ray.baselines.templates import Templates

_BASELINES: tuple[type[Baseline], ...] = (
    RawQuestion,
    QuestionKeywords,
    Rm3,
    Dense,
    Hybrid,
    IndexDense,
    IndexHybrid,
    Rerank,
    Hyde,
    Query2doc,
    Neighbours,
    Templates,
    Features,
)
BASELINES: dict[str, type[Baseline]] = {baseline.name: baseline for baseline in _BASELINES}
PROPOSERS = tuple(name for name, baseline in BASELINES.items() if baseline.proposes)
"""Whose additions to the question a collection can take."""


def describe_baselines() -> str:
    """Every baseline with what it searches, for the option's text."""
    return "; ".join(f"{name}: {baseline.summary}" for name, baseline in BASELINES.items())


def list_engine_sections() -> list[str]:
    """The sections of options that replies of an engine depend on."""
    with_engine = (baseline for baseline in BASELINES.values() if baseline.uses_engine)
    return list(dict.fromkeys(baseline.section[0] for baseline in with_engine if baseline.section))


def _build_section_fields(names: Iterable[str]) -> dict[str, Any]:
    """A field for each section of options of some baselines, by its name."""
    sections = {BASELINES[name].section: None for name in names}
    users = {section: [name for name, baseline in BASELINES.items() if baseline.section == section] for section in sections}
    return {
        name: (options, Field(default=options(), description=f"options of {' and '.join(users[name, options])}"))
        for name, options in filter(None, sections)
    }


if TYPE_CHECKING:
    BaselineName = ProposerName = str
    BaselineSections = ProposerSections = OptionSections
else:
    BaselineName = Literal[tuple(BASELINES)]
    ProposerName = Literal[PROPOSERS]
    BaselineSections = create_model("BaselineSections", __base__=OptionSections, **_build_section_fields(BASELINES))
    ProposerSections = create_model("ProposerSections", __base__=OptionSections, **_build_section_fields(PROPOSERS))
