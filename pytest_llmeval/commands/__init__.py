"""The sub-commands of ``llmeval``: a module for each, or for several that share what they do.

A module's ``add_parsers`` adds them to argparse's sub-parsers, each with the function that runs it: that one returns
the exit code and may raise ``LLMEvalError``.
"""
