"""The small chat model that ships with the package: a transformers checkpoint in this folder, see README.md."""
