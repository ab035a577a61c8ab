"""The folder of a stage's run: its address, its inputs, what is damaged of it, and its copy in an object store."""
