"""Readers of documents: PDF, pictures, Word, HTML, Markdown and text."""
