"""Replicas of a local model on the machines of a Ray cluster (``--llm-ray``). Imported only if that is given."""
