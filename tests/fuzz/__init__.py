"""Damaged files given to the command line: it may refuse them, in a line, and do nothing else.

`python -m tests.fuzz --seconds 600 --seed 7` runs new cases, `python -m tests.fuzz --replay FILE` one that failed. A
case fails if the command shows a traceback, dies, needs more than 1 GiB above what it began with or more than 30 s
of processor time, ends with 70, or lets a control character of the file reach the terminal.
"""
