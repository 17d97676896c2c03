"""The ways in which servers are asked."""
