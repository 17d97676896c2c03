"""Scoring: scorers judge one sample; metrics and statistics are taken over scores. No pytest, torch, clock, network."""
