"""What the ``llmeval`` command does, a module for each of its commands."""
