"""Reading replies: stated answers, numerals, rankings, and comparison with reference texts."""
