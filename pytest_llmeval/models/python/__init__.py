"""Models that are Python functions or objects of a user."""
