"""Formats in which a model writes its actions: one module each, and one line in `registry`."""
