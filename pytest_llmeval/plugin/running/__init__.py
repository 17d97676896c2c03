"""While tests run: records, the live line."""
