"""Writes the questions of example_suites/ and trains the demo model: seeded, from one small world of facts."""
