"""Documents become a search index, and their questions get a split."""
