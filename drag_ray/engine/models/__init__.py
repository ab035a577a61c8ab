"""The files of models and adapters, their tokens and their chat templates."""
