"""Files of rows: JSON, JSON Lines, CSV, YAML, Parquet, and data sets of the Hugging Face hub."""
