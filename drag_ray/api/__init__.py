"""drag_ray from Python: a run with its stages, what they leave as frames, and what can be asked without a run."""
