"""Networks: embeddings, encoders, heads and generators. They do not depend on losses, strategies or step counts."""
