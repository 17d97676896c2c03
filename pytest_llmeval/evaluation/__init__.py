"""A suite with its scorer: from samples to questions, and from replies to scores."""
