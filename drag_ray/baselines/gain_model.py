"""A model of gain: from what is known of a search to what it is expected to find beyond the question itself.

Ridge regression (Hoerl and Kennard, Ridge Regression: Biased Estimation for Nonorthogonal Problems, 1970) on standardised
features, their squares and products: what a list says depends on what the question's own list says. It is kept as JSON, which
can be read and is safe to load.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from drag_ray.artifacts import write_json
from drag_ray.errors import DataError
from drag_ray.json_text import parse_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

GAIN_MODEL_NAME = "gain_model.json"
PENALTIES = (1.0, 10.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5)
"""On the squares of the weights: each as much as so many searches say. Which one it is, cross-validation finds out."""
_NUM_FOLDS = 5
_LIMIT = 3.0
"""Standard deviations that a feature counts at most: products of what is far from all that was seen would say anything."""


@dataclass(frozen=True)
class GainModel:
    """Predicts gains. By default it expects none of anything.

    Attributes:
        features: their names, in the order of the numbers that it reads.
        means: what is taken from each.
        scales: what each is then divided by.
        weights: what each then counts, and after them the products of each with itself and with all that follow it.
        bias: what is added.
        figures: how it was fitted and how it did on validation questions, for the record.
    """

    features: tuple[str, ...] = ()
    means: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()
    bias: float = 0.0
    figures: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        num_features = len(self.features)
        num_terms = num_features + num_features * (num_features + 1) // 2
        found = (len(self.means), len(self.scales), len(self.weights))
        if found != (num_features, num_features, num_terms):
            raise ValueError(
                f"{num_features} features with {found[0]} means, {found[1]} scales and {found[2]} weights, expected "
                f"{num_features}, {num_features} and {num_terms}"
            )
        if not all(map(math.isfinite, (*self.means, *self.scales, *self.weights, self.bias))) or min(self.scales, default=1) <= 0:
            raise ValueError("a number is not finite, or a scale not above 0")

    def predict(self, rows: Sequence[Sequence[float]]) -> list[float]:
        """The gain that is expected of each row of features."""
        import numpy as np

        if not self.features or not rows:
            return [self.bias] * len(rows)
        terms = _build_terms(np.asarray(rows, dtype=np.float64), np.array(self.means), np.array(self.scales))
        return (terms @ np.array(self.weights) + self.bias).tolist()


def fit_gain_model(
    features: Sequence[str], rows: Sequence[Sequence[float]], gains: Sequence[float], questions: Sequence[int]
) -> GainModel:
    """The regression of gains on features, with the penalty of least squared error on questions that it is not fitted to.

    A feature that is the same in all rows counts nothing.

    Args:
        features: names of the columns.
        rows: at least one.
        gains: of the rows.
        questions: the number of each row's question, from 0 on: rows of one are held out together.
    """
    import numpy as np

    values, targets = np.asarray(rows, dtype=np.float64), np.asarray(gains, dtype=np.float64)
    means, scales = values.mean(axis=0), _compute_scales(values)
    # Six digits: sums in another order, as other cores make them, are to give the same file.
    means, scales = (_round(column) for column in (means, scales))
    terms = _build_terms(values, np.array(means), np.array(scales))
    folds = np.asarray(questions) % _NUM_FOLDS
    held_out = [held for held in (folds == fold for fold in range(_NUM_FOLDS)) if held.any() and not held.all()]
    errors = [_compute_errors(terms[~held], targets[~held], terms[held], targets[held]) for held in held_out]
    penalty = PENALTIES[int(np.argmin(np.sum(errors, axis=0)))] if errors else PENALTIES[-1]
    [(weights, bias)] = solve_ridge(terms, targets, [penalty])
    return GainModel(tuple(features), means, scales, _round(weights), _round(np.array([bias]))[0], {"penalty": penalty})


def solve_ridge(terms: "Floats", targets: "Floats", penalties: Sequence[float]) -> list[tuple["Floats", float]]:
    """For each penalty the weights and the bias of the ridge regression on the terms, each of them standardised.

    Args:
        terms: shape (num_rows, num_terms), not standardised; the weights are for them as they are.
        targets: shape (num_rows,).
        penalties: on the squares of the weights of the standardised terms.
    """
    import numpy as np

    means, scales = terms.mean(axis=0), _compute_scales(terms)
    standardised = (terms - means) / scales
    squares, products = standardised.T @ standardised, standardised.T @ (targets - targets.mean())
    solved = []
    for penalty in penalties:
        weights = np.linalg.solve(squares + penalty * np.eye(len(squares)), products) / scales
        solved.append((weights, float(targets.mean() - means @ weights)))
    return solved


def _compute_errors(terms: "Floats", targets: "Floats", held_terms: "Floats", held_targets: "Floats") -> list[float]:
    """The sum of squared errors on rows that are held out, for each of `PENALTIES`."""
    fitted = solve_ridge(terms, targets, PENALTIES)
    return [float((((held_terms @ weights) + bias - held_targets) ** 2).sum()) for weights, bias in fitted]


def _build_terms(rows: "Floats", means: "Floats", scales: "Floats") -> "Floats":
    """Standardised features, then the products of each with itself and with all that follow it."""
    import numpy as np

    values = np.clip((rows - means) / scales, -_LIMIT, _LIMIT)
    first, second = np.triu_indices(values.shape[1])
    return np.hstack([values, values[:, first] * values[:, second]])


def _compute_scales(columns: "Floats") -> "Floats":
    scales = columns.std(axis=0)
    scales[scales < 1e-9] = 1.0
    return scales


def _round(values: "Floats") -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)


def choose_best(gains: Sequence[float]) -> int | None:
    """The place of the highest expected gain, the first of equal ones; None where none is above 0: the question is enough."""
    best = max(range(len(gains)), key=lambda place: gains[place], default=None)
    return best if best is not None and gains[best] > 0 else None


def write_gain_model(folder: Path, model: GainModel) -> None:
    """Write a model into a folder, whole or not at all."""
    write_json(folder / GAIN_MODEL_NAME, asdict(model))


def read_gain_model(folder: Path) -> GainModel:
    """The model of a folder.

    Raises:
        DataError: there is none, or the file is not what `write_gain_model` writes.
    """
    path = folder / GAIN_MODEL_NAME
    try:
        raw = parse_json(path.read_text(encoding="utf-8"))
        columns = {name: tuple(map(float, raw[name])) for name in ("means", "scales", "weights")}
        return GainModel(tuple(map(str, raw["features"])), **columns, bias=float(raw["bias"]), figures=dict(raw["figures"]))
    except FileNotFoundError:
        problem = "no such file"
    except (OSError, ValueError, TypeError, KeyError) as error:
        problem = f"no model of gain ({type(error).__name__}: {error})"
    raise DataError(f"{path}: {problem}, expected what evaluate fits for best_of. Remove it and run: python jobs/evaluate.py")
