"""Files that are written whole or not at all, and the places that they lie in."""
