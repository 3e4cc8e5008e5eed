"""Names and weights of other code's checkpoints: the authors' and Hugging Face's."""
