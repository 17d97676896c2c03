"""lm-eval's own task files as suites: recognised, read with what they include, and translated to the suite format.

Made after lm-eval 0.4.13. A task that calls no Python needs no lm-eval here.
"""
