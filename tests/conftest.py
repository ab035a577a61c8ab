"""Shared test set-up; its presence puts this folder on the import path, so that tests can `import factories`."""

from hypothesis import settings

# The same examples on every machine and in every run, so that what passes here passes there; `make slow` draws others each time.
settings.load_profile("ci")
