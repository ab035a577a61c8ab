"""Trajectories become scored searches and statistics."""
