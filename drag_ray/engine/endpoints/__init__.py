"""Clients of OpenAI-compatible endpoints, with their limits and their costs."""
