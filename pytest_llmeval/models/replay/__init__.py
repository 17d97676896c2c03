"""Models that answer from a file of earlier replies."""
