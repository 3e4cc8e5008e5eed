"""Names and weights of other code's checkpoints: the authors' TensorFlow 1 checkpoints."""
