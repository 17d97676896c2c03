"""Several workers: how samples are distributed, and what crosses processes."""
