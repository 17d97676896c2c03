"""LLM benchmarks as pytest suites."""
