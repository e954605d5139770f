"""A function run in a process of its own, where it may crash or go on for ever."""

import gc
import os
import pickle
import resource
import signal

MEMORY = 16 << 30  # bytes: a result that is too large is an error on every machine


def bound_memory():
    if "asan" not in os.environ.get("LD_PRELOAD", ""):  # which reserves more addresses than that
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def apart(function, limit=120):
    """What function() gives, or what became of the process."""
    read, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        gc.freeze()
        bound_memory()
        signal.alarm(limit)
        with open(os.devnull, "w") as null:
            os.dup2(null.fileno(), 2)
        try:
            answer = function()
        except BaseException as error:
            answer = f"the checker itself: {type(error).__name__}: {error}"
        with os.fdopen(write_end, "wb") as pipe:
            pickle.dump(answer, pipe)
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return f"ends with signal {os.WTERMSIG(status)}"
    return pickle.loads(answer) if answer else f"ends with status {os.WEXITSTATUS(status)}"  # a sanitizer
