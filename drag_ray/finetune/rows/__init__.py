"""The rows of a training: read, checked and made token ids, with their page images."""
