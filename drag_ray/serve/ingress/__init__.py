"""The way of a request from the proxy to an engine, and of its stream back."""
