"""Choosing how pages are searched, by the questions that training has, before anything is trained."""
