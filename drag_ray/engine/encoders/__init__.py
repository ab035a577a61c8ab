"""Models that give vectors or scores in place of words: embeddings, rerankers, reward models."""
