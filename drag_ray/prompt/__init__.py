"""The model's instructions become better ones without training: the baseline that training has to beat."""
