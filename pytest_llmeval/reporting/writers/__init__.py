"""One module for each format that a report is written in; `targets.py` is the table of them."""
