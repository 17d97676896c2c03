"""Writing text: batches, caches of shared headers, stop strings."""
