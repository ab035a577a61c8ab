"""Questions with their answers and evidence, written by a model from the pages of the index and filtered."""
