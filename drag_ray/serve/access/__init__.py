"""Access control and limits of the endpoint."""
