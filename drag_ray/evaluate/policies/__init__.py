"""The policies of a comparison, and how each searches the questions."""
