"""The search agent: what it is told, what it writes, and the loop that runs it."""
