"""The suite format: the keys of a suite file, their values, and the messages about mistakes in them."""
