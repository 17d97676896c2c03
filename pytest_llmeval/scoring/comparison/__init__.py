"""Two models or two reports, sample by sample."""
