"""What the ``llmeval`` command does, a module for each of its commands.

``add_parser`` adds the command to argparse's sub-parsers, ``run`` returns its exit code and may raise ``LLMEvalError``.
"""
