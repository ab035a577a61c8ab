"""Trajectories become scored searches and statistics."""

FILTERS = ("truncated", "last_reply", "repetitive", "file_name", "told_answer", "duplicate", "near_duplicate")
"""What `process.filters` names, in the order in which they are applied (`quality`)."""
CANDIDATES = "candidates"
REWARDS = ("gain", CANDIDATES, "v_retrver", "opensearch_vl")
"""What `process.reward` names: the gain over the question, what is added to a reader's candidates, and the rewards of published
systems."""
ELSEWHERE = {name: f"recipes.{name}.reward" for name in REWARDS[2:]}
