"""From a suite file to samples: sources of rows, the mapping of their columns, few-shot examples."""
