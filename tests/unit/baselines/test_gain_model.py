"""The model of gain: what it learns, what it refuses."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from drag_ray.baselines.gain_model import (
    GAIN_MODEL_NAME,
    PENALTIES,
    GainModel,
    choose_best,
    fit_gain_model,
    read_gain_model,
    solve_ridge,
    write_gain_model,
)
from drag_ray.errors import DataError

MODEL = GainModel(("rbo", "wig"), (0.5, 2.0), (0.5, 4.0), (0.1, -0.2, 0.03, 0.05, -0.07), 0.01, {"questions": 3})


def test_a_prediction_is_a_sum_of_standardised_features_their_squares_and_products() -> None:
    # The first row is (1, 0), the second (-1, 2): .1 z1 - .2 z2 + .03 z1 z1 + .05 z1 z2 - .07 z2 z2 + .01.
    assert MODEL.predict([[1.0, 2.0], [0.0, 10.0]]) == pytest.approx([0.14, -0.1 - 0.4 + 0.03 - 0.1 - 0.28 + 0.01])
    assert GainModel().predict([[1.0, 2.0]]) == [0.0]
    assert MODEL.predict([]) == []


def test_what_is_far_from_all_that_was_seen_counts_as_three_standard_deviations() -> None:
    assert MODEL.predict([[1e9, 2.0]]) == pytest.approx(MODEL.predict([[2.0, 2.0]]))
    assert MODEL.predict([[0.5, -1e9]]) == pytest.approx(MODEL.predict([[0.5, -10.0]]))


def draw(num_rows: int, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows of three features, of which one and the product of the others say something of the gains."""
    numbers = np.random.default_rng(0)
    rows = numbers.normal(3, 2, size=(num_rows, 3))
    return rows, 0.2 * rows[:, 0] + 0.1 * (rows[:, 1] - 3) * (rows[:, 2] - 3) + numbers.normal(0, noise, size=num_rows)


def test_weights_are_those_of_ridge_regression() -> None:
    rows, gains = draw(200, 0.5)
    [(weights, bias)] = solve_ridge(rows, gains, [7.0])
    # The same by the definition: least squares with a row of its own for each weight's penalty.
    standardised = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    system = np.vstack([standardised, np.sqrt(7.0) * np.eye(3)])
    expected = np.linalg.lstsq(system, np.concatenate([gains - gains.mean(), np.zeros(3)]))[0]
    assert weights * rows.std(axis=0) == pytest.approx(expected)
    assert rows @ weights + bias == pytest.approx(standardised @ expected + gains.mean())


def test_what_is_learned_are_effects_and_products() -> None:
    rows, gains = draw(500, 0.05)
    model = fit_gain_model(("one", "two", "three"), rows[:400].tolist(), gains[:400].tolist(), range(400))
    predicted = model.predict(rows[400:].tolist())
    inside = (np.abs(rows[400:] - 3) < 5.5).all(axis=1)
    assert np.corrcoef(np.array(predicted)[inside], gains[400:][inside])[0, 1] > 0.99


def test_the_less_there_is_to_learn_the_larger_the_penalty() -> None:
    (rows, clear), (_, noisy) = draw(200, 0.01), draw(200, 20.0)
    penalties = [
        fit_gain_model(("one", "two", "three"), rows.tolist(), gains.tolist(), range(200)).figures["penalty"]
        for gains in (clear, noisy)
    ]
    assert penalties[0] == PENALTIES[0]
    assert penalties[1] >= 300


def test_rows_of_a_question_are_held_out_together() -> None:
    """Copies of rows whose gains are noise: held out one by one, they could be learned by heart."""
    numbers = np.random.default_rng(1)
    rows, gains = np.repeat(numbers.normal(size=(30, 8)), 10, axis=0), np.repeat(numbers.normal(size=30), 10)
    names = [f"feature {number}" for number in range(8)]
    apart, together = (
        fit_gain_model(names, rows.tolist(), gains.tolist(), questions).figures["penalty"]
        for questions in (range(300), np.repeat(range(30), 10).tolist())
    )
    assert apart == PENALTIES[0] < together


def test_a_single_question_teaches_next_to_nothing() -> None:
    model = fit_gain_model(("one",), [[0.0], [1.0]], [-1.0, 1.0], [0, 0])
    assert model.figures["penalty"] == PENALTIES[-1]
    assert model.predict([[1.0]]) == pytest.approx([0.0], abs=1e-3)


def test_a_feature_that_never_changes_counts_nothing() -> None:
    model = fit_gain_model(("same", "other"), [[7.0, 0.0], [7.0, 1.0]] * 50, [0.0, 1.0] * 50, range(100))
    assert model.weights[0] == 0
    assert model.predict([[7.0, 1.0], [7.0, 0.0]]) == pytest.approx([1, 0], abs=0.05)


@pytest.mark.parametrize(
    ("gains", "best"), [([], None), ([-0.1, 0.0], None), ([0.1, 0.3, 0.2], 1), ([-1.0, 0.2, 0.2], 1), ([0.2], 0)]
)
def test_the_highest_gain_above_nothing_is_chosen_and_the_first_of_equals(gains: list[float], best: int | None) -> None:
    assert choose_best(gains) == best


def test_it_is_kept_with_its_figures(tmp_path: Path) -> None:
    write_gain_model(tmp_path, MODEL)
    assert read_gain_model(tmp_path) == MODEL


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("{", "JSONDecodeError"),
        ("[]", "TypeError"),
        ({"weights": [0.1]}, "2 features with 2 means, 2 scales and 1 weights, expected 2, 2 and 5"),
        ({"bias": float("nan")}, "not finite"),
        ({"scales": [1.0, 0.0]}, "a scale not above 0"),
        ({"means": ["a", "b"]}, "could not convert"),
    ],
)
def test_a_broken_file_is_named_with_the_remedy(tmp_path: Path, change: str | dict[str, object], problem: str) -> None:
    write_gain_model(tmp_path, MODEL)
    path = tmp_path / GAIN_MODEL_NAME
    path.write_text(change if isinstance(change, str) else json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=rf"gain_model\.json: no model of gain \(.*{problem}.*jobs/evaluate\.py"):
        read_gain_model(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gain_model\.json: no such file.*jobs/evaluate\.py"):
        read_gain_model(tmp_path)


def test_numbers_that_are_not_finite_make_no_model() -> None:
    with pytest.raises(ValueError, match="not finite"):
        replace(MODEL, bias=float("inf"))
