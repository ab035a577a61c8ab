"""What a rollout is for: how it opens, what a reply leads to, when it ends, and what counts as success."""
