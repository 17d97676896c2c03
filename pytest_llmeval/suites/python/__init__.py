"""Benchmarks written as Python classes."""
