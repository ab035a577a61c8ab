"""Trajectories for people to read: a list and transcripts in the terminal, and a page for the browser."""
