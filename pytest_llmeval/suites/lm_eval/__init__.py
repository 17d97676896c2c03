"""lm-eval's own task files as suites: recognised, read with the files that they include, and translated.

Made after lm-eval 0.4.13. A task that calls no Python needs no lm-eval here.
"""
