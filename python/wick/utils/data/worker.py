"""What runs in a worker process of a DataLoader, and what parent and worker say to each other.

Parent and worker share one pipe. Parent to worker: (number, indices) to fetch, RESET to begin a new pass, None to stop.
Worker to parent: (number, batch), (number, WorkerError), (number, END) when its stream is over, (RESET, worker) in
answer. A thread of the worker reads the pipe all the time, so the parent never waits when it sends, and the worker ends
when the parent dies.
"""

from ... import _C

RESET = "reset"
END = "end of stream"

_info = None


class WorkerInfo:
    """Which worker this is: id, num_workers, seed, and its copy of the dataset."""

    def __init__(self, **values):
        self.__dict__.update(values)

    def __repr__(self):
        return f"WorkerInfo({', '.join(f'{k}={v}' for k, v in self.__dict__.items())})"


def get_worker_info():
    """The WorkerInfo in a worker process, None elsewhere."""
    return _info


class ManagerWatchdog:
    """Whether the process that started this one lives, which loaders of old ask in their workers."""

    def __init__(self):
        import os

        self.manager_pid, self.manager_dead = os.getppid(), False

    def is_alive(self):
        """False from when the parent has died."""
        import os

        self.manager_dead = self.manager_dead or os.getppid() != self.manager_pid
        return not self.manager_dead


class WorkerError:
    """An exception on its way to the parent, with its traceback as text."""

    def __init__(self, error, where):
        import traceback

        self.type, self.where = type(error), where
        self.text = "".join(traceback.format_exception(error))

    def reraise(self):
        """Raises the exception again, of its type if that takes a message."""
        message = f"Caught {self.type.__name__} {self.where}.\nOriginal {self.text}"
        if self.type is KeyError:
            message = _Verbatim(message)
        try:
            error = self.type(message)
        except Exception:
            raise RuntimeError(message) from None
        raise error


class _Verbatim(str):
    """A KeyError shows the repr of its message, which would hide the lines of a traceback."""

    def __repr__(self):
        return str(self)


class Fetcher:
    """Gets samples and makes them a batch. One pass: a stream is begun when the fetcher is made."""

    def __init__(self, dataset, is_stream, auto_collation, collate_fn, drop_last):
        self.dataset, self.collate_fn = dataset, collate_fn
        self.auto_collation, self.drop_last = auto_collation, drop_last
        self.stream = iter(dataset) if is_stream else None
        self.ended = False

    def fetch(self, indices):
        """The batch at the indices; StopIteration at the end of a stream, of which only the number of indices "
        "counts."""
        return self.collate_fn(self._samples(indices) if self.stream is None else self._next(indices))

    def _samples(self, indices):
        if not self.auto_collation:
            return self.dataset[indices]
        several = getattr(self.dataset, "__getitems__", None)
        return several(indices) if several else [self.dataset[i] for i in indices]

    def _next(self, indices):
        if self.ended:
            raise StopIteration
        if not self.auto_collation:
            return next(self.stream)
        samples = []
        for _ in indices:
            try:
                samples.append(next(self.stream))
            except StopIteration:
                self.ended = True
                break
        if not samples or (self.drop_last and len(samples) < len(indices)):
            raise StopIteration
        return samples


def import_for_workers():
    """Imports in the parent what workers use, so that forked ones import nothing: the lock of an import that another
    thread of the parent is in would never be released in them."""
    import multiprocessing.connection
    import multiprocessing.popen_fork
    import queue
    import random
    import sys
    import threading
    import traceback

    numpy_random = getattr(sys.modules.get("numpy"), "random", None)  # numpy imports it when it is first asked for
    return multiprocessing, queue, random, threading, traceback, numpy_random


def _seed(base_seed, worker_id):
    """Seeds the generators: PyTorch's scheme, so that random augmentation gives the same numbers."""
    import random
    import sys

    seed = base_seed + worker_id
    random.seed(seed)
    _C.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        words = [worker_id, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
        numpy.random.seed(numpy.random.SeedSequence(words).generate_state(4))
    return seed


def _read_forever(pipe, tasks):
    """The reading thread."""
    import os
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    parent = parent_process().sentinel
    try:
        while True:
            if pipe in wait([pipe, parent]):
                task = pipe.recv()
                tasks.put(task)
                if task is None:
                    return
            else:
                os._exit(1)  # the parent is gone; the main thread may hang in a send
    except (EOFError, OSError):
        tasks.put(None)


def run_worker(pipe, dataset, fetcher_options, base_seed, worker_id, num_workers, init_fn):
    """The main function of a worker process."""
    import queue
    import threading

    global _info
    where = f"in DataLoader worker process {worker_id}"
    _C.set_num_threads(1)
    seed = _seed(base_seed, worker_id)
    _info = WorkerInfo(id=worker_id, num_workers=num_workers, seed=seed, dataset=dataset)
    tasks = queue.SimpleQueue()
    threading.Thread(target=_read_forever, args=(pipe, tasks), daemon=True).start()

    failure = None
    try:
        if init_fn is not None:
            init_fn(worker_id)
        fetcher = Fetcher(dataset, *fetcher_options)
    except Exception as error:
        failure = WorkerError(error, where)
    while (task := tasks.get()) is not None:
        if task == RESET:
            try:
                fetcher = Fetcher(dataset, *fetcher_options)
                failure = None
            except Exception as error:
                failure = WorkerError(error, where)
            pipe.send((RESET, worker_id))
            continue
        number, indices = task
        if failure is None:
            try:
                result = fetcher.fetch(indices)
            except StopIteration as error:
                result = END if fetcher.stream is not None else WorkerError(error, where)
            except Exception as error:
                result = WorkerError(error, where)
        else:
            result, failure = failure, None
        _send(pipe, number, result, where)


def _send(pipe, number, result, where):
    """Sends a result; one that cannot be pickled is an error of the worker."""
    try:
        pipe.send((number, result))
    except (BrokenPipeError, ConnectionResetError):
        pass  # the parent has stopped listening and will say so
    except Exception as error:
        pipe.send((number, WorkerError(error, where)))
