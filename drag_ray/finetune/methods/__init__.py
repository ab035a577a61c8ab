"""Training methods: a module each, and a line each in `registry`."""
