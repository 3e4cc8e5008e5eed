"""The protocol of fine-tuning: an encoder that was trained before, a task, several seeds, and what comes of them."""
