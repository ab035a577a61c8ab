"""The endpoint's own routes: searches, answers and tools for other agents."""
