"""One module for each scorer, in a folder by what it reads."""
