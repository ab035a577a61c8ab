"""The policy learns from what it has just done: rollouts and training in turns, with engines and trainers that stay."""
