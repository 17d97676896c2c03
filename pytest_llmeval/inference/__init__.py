"""Between samples and models: which requests are sent together, ahead of time, and in which order."""
