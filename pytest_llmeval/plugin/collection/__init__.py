"""From suite files to test items."""
