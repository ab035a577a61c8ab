"""Text generation: the protocol that the agent sees, and the engines behind it."""
