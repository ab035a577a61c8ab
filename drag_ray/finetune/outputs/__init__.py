"""The outputs of a training: its checkpoints, what is published of the last one, and the proof that it is served."""
