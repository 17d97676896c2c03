"""What the terminal shows of a report: the summary, its tables and lines."""
