"""The trainers of the methods, after those of TRL, and their batches: what loads PyTorch, and is imported where it trains."""
