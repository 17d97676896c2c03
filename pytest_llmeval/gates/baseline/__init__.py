"""Gates against a saved report: which samples are paired, which drop is a regression."""
