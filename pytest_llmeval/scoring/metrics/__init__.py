"""From scores of samples to metrics of suites."""
