"""drag_ray: teach a model to search your documents, from its own search trajectories."""

__version__ = "0.1.0"
