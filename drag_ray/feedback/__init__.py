"""Feedback: what people did with the pages that an endpoint showed them, and the questions that are learned from it."""
