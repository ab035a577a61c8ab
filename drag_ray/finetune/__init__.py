"""Training rows become a LoRA adapter."""
