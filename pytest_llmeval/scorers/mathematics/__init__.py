"""Comparing mathematics, in a process of its own."""
