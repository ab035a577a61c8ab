"""Many rollouts at once: what is left to do, who does it, and what became of it."""
