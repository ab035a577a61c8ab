"""Documents become pages, and questions are checked against them."""
