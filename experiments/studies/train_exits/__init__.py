"""Exit tables by real training."""
