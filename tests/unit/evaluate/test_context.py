"""What qualifies the numbers of a report."""

from drag_ray.baselines.best_of import BestOf, BestOfConfig
from drag_ray.baselines.hyde import Hyde
from drag_ray.baselines.question import RawQuestion
from drag_ray.evaluate.context import describe_sampling


def test_policies_that_are_drawn_are_named_beside_the_greedy_ones() -> None:
    options = BestOfConfig(preset="high_temp")
    greedy = {"question": RawQuestion(), "hyde": Hyde()}
    assert describe_sampling(greedy) == "greedy"
    assert describe_sampling({**greedy, "best_of": BestOf(options)}) == "greedy (best_of: high_temp)"
