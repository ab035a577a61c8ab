"""The sandbox of programs that a model writes."""
