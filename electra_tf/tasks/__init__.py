"""What is trained: a model with its losses, metrics and parameter groups."""
