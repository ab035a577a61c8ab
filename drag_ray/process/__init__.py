"""Trajectories become scored searches and statistics."""

REWARDS = ("gain", "v_retrver", "opensearch_vl")
"""What `process.reward` names: the gain over the question, and the rewards of published systems."""
ELSEWHERE = {name: f"recipes.{name}.reward" for name in REWARDS[1:]}
