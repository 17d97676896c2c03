"""Scorers that ask a judge: a second model, which gives verdicts on replies."""
