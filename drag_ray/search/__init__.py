"""The Tantivy page index: build it, open it, ask it."""
