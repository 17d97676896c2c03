"""Runs code that a model wrote, apart from everything else, and judges it by what its functions return.

Two processes take part, each in a sandbox of its own. One runs the reply's program (``program_side.py``), the other the
tests (``tests_side.py``). Between them this process (``verdict.py``) passes lines of JSON: the tests call a function of
the program, and what it returns comes back as plain data (``values.py``). So the verdict is given where no code of the
reply runs, and by objects that no code of the reply has made.
"""
