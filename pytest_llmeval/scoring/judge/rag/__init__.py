"""``score: rag``: a judge on answers that were written from retrieved contexts, and on these contexts."""
