"""From requests to batches of tokens."""
