"""Fine-tuning: a file for each kind of task, its data, model and scores, and training with several seeds."""
