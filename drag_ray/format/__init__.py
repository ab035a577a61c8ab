"""Scored searches become training rows."""
