"""The ``llmeval`` command, a module for each of its sub-commands.

``add_parser`` adds the command to argparse's sub-parsers, ``run`` returns its exit code and may raise ``LLMEvalError``.
"""
