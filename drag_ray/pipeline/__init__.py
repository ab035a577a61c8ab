"""The stages as data, the options of all of them, and the order in which they run."""
