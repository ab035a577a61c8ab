"""Who may ask the endpoint, and for how much."""
