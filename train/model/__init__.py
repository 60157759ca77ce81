"""The trainable model: where it comes from, batches, losses, the optimiser."""
