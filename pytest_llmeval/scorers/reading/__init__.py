"""How replies are read: boxes, stated answers, numerals, rankings, JSON Schemas."""
