"""Policies that a trained one has to beat: the question, its key words, query expansion, passages that a model writes."""
