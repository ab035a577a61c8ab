"""Tools that show an image by itself, and what tools on images have in common."""
