"""All clients of all runs at once: the batched engine, its layout, draws, measures and checkpoints."""
