"""Trained weights on disk: runs of this program, Hugging Face folders and the authors' TensorFlow 1 checkpoints."""
