"""A base model and its adapters behind one OpenAI-compatible endpoint."""
