"""How a `python -m wick.*` command ends: with its status, and silently when the reader of its output has gone.

if __name__ == "__main__":
    run(main)
"""

import os
import sys

SIGPIPE_STATUS = 128 + 13  # what a shell reports of a program that ended so


def _flush():
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()


def _drop_output():
    """What is still buffered goes nowhere, so that Python's own flush at exit finds nothing to complain about."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            os.dup2(nowhere, stream.fileno())


def run(main):
    """Ends the process with what main() gives. A reader that went away (`| head`) ends it without a traceback."""
    try:
        try:
            status = main()
        except SystemExit:
            _flush()
            raise
        _flush()
    except BrokenPipeError:
        _drop_output()
        sys.exit(SIGPIPE_STATUS)
    sys.exit(status)
