"""What qualifies the numbers of a report."""

from dataclasses import replace

from evaluation_cases import CONTEXT, build_comparison

from drag_ray.baselines.best_of import BestOf, BestOfConfig
from drag_ray.baselines.hyde import Hyde
from drag_ray.baselines.question import RawQuestion
from drag_ray.evaluate.caption import write_caption
from drag_ray.evaluate.context import describe_sampling, join_contexts


def test_policies_that_are_drawn_are_named_beside_the_greedy_ones() -> None:
    options = BestOfConfig(preset="high_temp")
    greedy = {"question": RawQuestion(), "hyde": Hyde()}
    assert describe_sampling(greedy) == "greedy"
    assert describe_sampling({**greedy, "best_of": BestOf(options)}) == "greedy (best_of: high_temp)"


def test_worse_pictures_are_said_of_each_evaluation() -> None:
    worse, comparison = replace(CONTEXT, pictures="50 % made worse (jpeg; seed 0)"), build_comparison({"A": [1], "B": [1]}, "A")
    assert "Pictures: 50 % made worse (jpeg; seed 0)." in write_caption(comparison, worse)
    assert "Pictures" not in write_caption(comparison, CONTEXT)
    joined = join_contexts({"A": CONTEXT, "B": worse}, "", "")
    assert "Pictures: as they are (A), 50 % made worse (jpeg; seed 0) (B)." in write_caption(comparison, joined)
