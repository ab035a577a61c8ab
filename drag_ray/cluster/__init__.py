"""The connection to Ray, what its nodes have, and what runs on them."""
