"""Networks: embeddings, encoders, heads and generators. They know nothing of losses, strategies or step counts."""
