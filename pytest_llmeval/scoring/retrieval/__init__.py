"""Judging the documents that a search found by relevance judgements."""
