"""What is compared: how each policy searches the questions."""
