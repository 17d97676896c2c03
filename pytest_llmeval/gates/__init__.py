"""Gates: rules over a report, and tests of one report against another, that can fail a run."""
