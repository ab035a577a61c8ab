"""Fetching of pages of the web, and their text."""
