"""Intervals, tests and tables over questions that are grouped by document."""
