"""The small model that ships with the package: a transformers checkpoint in this folder, described in README.md."""
