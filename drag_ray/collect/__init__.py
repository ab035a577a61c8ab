"""Questions become trajectories."""
