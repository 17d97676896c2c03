"""Reports as one HTML file, to be mailed, kept by CI, and opened from disk without a network."""
