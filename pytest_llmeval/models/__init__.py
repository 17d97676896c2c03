"""Models: what is evaluated, and the backends that run it."""
