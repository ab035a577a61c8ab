"""The log-linear model of the baseline `features`, and the file in which an evaluation leaves it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from drag_ray.errors import ConfigError
from drag_ray.search.config import Factors, RetrievalName
from drag_ray.storage import artifacts

FEATURES_NAME = "features.json"


@dataclass(frozen=True)
class QuestionKind:
    """A kind of question.

    Attributes:
        words: its wording; empty for the kind that every question is of.
        terms: that set evidence pages apart from others that are found, with their weights.
    """

    words: tuple[str, ...]
    terms: dict[str, FiniteFloat]


@dataclass(frozen=True)
class FeatureModel:
    """A learned model.

    Attributes:
        words: that are common among questions, by which their kinds are told.
        kinds: of questions.
        means, deviations: of each feature over the pages that it was learned from.
        weights: of the standardised features, `(values - means) / deviations`; none where nothing was learned.
        num_questions: it was learned from.
        retrieval: the search that found those pages.
        index_fingerprint: of the index that has them.
        with_model: what its scores count, and those of the reranker's model that was evaluated beside it, learned on questions of
            which the model has not learned, or that model's share; None where there was no such model, or no such question.
    """

    words: frozenset[str] = frozenset()
    kinds: tuple[QuestionKind, ...] = ()
    means: tuple[FiniteFloat, ...] = ()
    deviations: tuple[FiniteFloat, ...] = ()
    weights: tuple[FiniteFloat, ...] = ()
    num_questions: int = 0
    retrieval: RetrievalName = "bm25"
    index_fingerprint: str = ""
    with_model: Factors | Annotated[float, Field(ge=0, le=1)] | None = None


def write_features(folder: Path, model: FeatureModel) -> None:
    """Write `features.json`, whole or not at all."""
    artifacts.write_json(folder / FEATURES_NAME, asdict(model) | {"words": sorted(model.words)})


def read_features(folder: Path) -> FeatureModel:
    """The model that an evaluation has left. Raises ConfigError: there is none, or it has learned nothing, or is no such file;
    the message begins with the option."""
    path, option = folder / FEATURES_NAME, "serve.rerank.features"
    learn = "Evaluate with `features` among evaluate.baselines, and name the folder of that evaluation."
    try:
        model = TypeAdapter(FeatureModel).validate_json(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(f"{option} {str(folder)!r}: has no {FEATURES_NAME}. {learn}") from None
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{option}: {path} is no model of features ({error}). {learn}") from None
    if not model.weights or not len(model.means) == len(model.deviations) == len(model.weights) or 0 in model.deviations:
        raise ConfigError(f"{option}: {path} has learned nothing: too few training questions find their evidence. Leave it out.")
    return model


def describe_other_features(model: FeatureModel, index_fingerprint: str) -> str:
    """The words that a model was learned on another index than the one that is searched; empty where it was not."""
    if model.index_fingerprint == index_fingerprint:
        return ""
    return (
        f"rerank.features were learned on another index ({model.index_fingerprint}) than is searched ({index_fingerprint}): "
        "other pages may answer there what is asked alike. Evaluate on this index with the baseline `features`."
    )
