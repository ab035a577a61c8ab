"""Adapters that are loaded and unloaded while the endpoint runs."""
