import re
from xml.etree import ElementTree

import pytest
from evaluation_cases import build_comparison

from drag_ray.evaluate.report.plots import (
    build_rank_buckets,
    draw_hit_bars,
    draw_rank_changes,
    draw_training_curve,
)

COMPARISON = build_comparison({"base <1>": [1, None, 5, 9], "tuned $x$": [1, 1, 2, None]}, baseline="base <1>", num_resamples=50)


@pytest.mark.parametrize("depth", [1, 3, 7, 10, 50, 1000])
def test_rank_buckets_cover_every_rank_once(depth):
    buckets = build_rank_buckets(depth)
    assert [rank for _, first, last in buckets for rank in range(first, last + 1)] == list(range(1, depth + 1))


def test_rank_buckets_are_named_by_their_ranks():
    assert [label for label, _, _ in build_rank_buckets(10)] == ["1", "2", "3", "4-5", "6-10"]


@pytest.mark.parametrize("draw", [draw_hit_bars, draw_rank_changes])
def test_drawings_are_described_escaped_xml_in_the_colours_of_the_page(draw):
    svg = draw(COMPARISON)
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img"
    assert "base <1>" in root.get("aria-label", "")
    assert "base <1>" in "".join(root.itertext())
    assert root.get("width") is None
    assert "var(--ink)" in svg
    assert not re.search(r"#0\w0\w0\w\b", svg)


def test_rank_changes_count_questions_that_moved():
    assert "2 questions moved to a better group of ranks, 1 to a worse one" in draw_rank_changes(COMPARISON)


def test_a_training_curve_may_lack_evaluation_losses():
    svg = draw_training_curve([{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0, "eval_loss": None}])
    assert "training loss from 2.000 to 1.000" in svg
    assert "held out" not in svg


def test_a_drawing_is_the_same_from_run_to_run():
    assert draw_hit_bars(COMPARISON) == draw_hit_bars(COMPARISON)


def test_ids_of_two_drawings_do_not_collide():
    ids = [set(re.findall(r'<clipPath id="([^"]+)"', draw(COMPARISON))) for draw in (draw_hit_bars, draw_rank_changes)]
    assert ids[0]
    assert not ids[0] & ids[1]
