"""DataLoader: batches of a data set, fetched here or in worker processes."""

import warnings
import weakref

from ... import _C
from .collate import default_collate, default_convert, pin_memory
from .dataset import IterableDataset
from .sampler import BatchSampler, RandomSampler, Sampler, SequentialSampler
from .worker import END, RESET, Fetcher, WorkerError, get_worker_info, import_for_workers, run_worker

__all__ = ["DataLoader", "get_worker_info"]


class _Forever(Sampler):
    """The sampler of a stream: there are no indices, only turns."""

    def __iter__(self):
        while True:
            yield None


class DataLoader:
    """Iterates over a data set in batches.

    num_workers processes fetch ahead, prefetch_factor batches each; the order of batches does not depend on them.

        loader = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
        for x, y in loader: ...    # (32, ...), (32, ...)
    """

    _iterator = None
    _fixed = ()

    def __init__(
        self,
        dataset,
        batch_size=1,
        shuffle=None,
        sampler=None,
        batch_sampler=None,
        num_workers=0,
        collate_fn=None,
        pin_memory=False,
        drop_last=False,
        timeout=0,
        worker_init_fn=None,
        multiprocessing_context=None,
        generator=None,
        *,
        prefetch_factor=None,
        persistent_workers=False,
        pin_memory_device="",
        in_order=True,
    ):
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        if num_workers == 0 and prefetch_factor is not None:
            raise ValueError(
                "prefetch_factor option could only be specified in multiprocessing."
                "let num_workers > 0 to enable multiprocessing, otherwise set prefetch_factor to None."
            )
        if num_workers > 0 and prefetch_factor is None:
            prefetch_factor = 2
        elif prefetch_factor is not None and prefetch_factor < 0:
            raise ValueError("prefetch_factor option should be non-negative")
        if persistent_workers and num_workers == 0:
            raise ValueError("persistent_workers option needs num_workers > 0")
        self.dataset = dataset
        self.num_workers = num_workers
        self.prefetch_factor = prefetch_factor
        self.pin_memory = pin_memory
        self.pin_memory_device = pin_memory_device
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self.multiprocessing_context = multiprocessing_context
        self.in_order = in_order
        self.generator = generator
        self.persistent_workers = persistent_workers
        self._is_stream = isinstance(dataset, IterableDataset)
        self._set_samplers(batch_size, bool(shuffle), shuffle, sampler, batch_sampler, drop_last)
        if collate_fn is None:
            collate_fn = default_collate if self._auto_collation else default_convert
        self.collate_fn = collate_fn
        self._fixed = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")

    def _set_samplers(self, batch_size, shuffled, shuffle, sampler, batch_sampler, drop_last):
        if self._is_stream:
            for name, value in (("shuffle", shuffle), ("sampler", sampler), ("batch_sampler", batch_sampler)):
                if value not in (None, False):
                    raise ValueError(
                        f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={value}"
                    )
        if sampler is not None and shuffled:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffled or sampler is not None or drop_last:
                raise ValueError(
                    "batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last"
                )
            batch_size = None
            drop_last = False
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            if self._is_stream:
                sampler = _Forever()
            elif shuffled:
                sampler = RandomSampler(self.dataset, generator=self.generator)
            else:
                sampler = SequentialSampler(self.dataset)
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.sampler = sampler
        self.batch_sampler = batch_sampler

    def __setattr__(self, name, value):
        if name in self._fixed:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def __class_getitem__(cls, item):
        return cls  # DataLoader[T] is for type checkers only

    @property
    def multiprocessing_context(self):
        """How worker processes start: None, "fork", "spawn", "forkserver" or a context."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, context):
        if context is not None:
            if not self.num_workers > 0:
                raise ValueError(
                    "multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got "
                    f"num_workers={self.num_workers}"
                )
            import multiprocessing
            from multiprocessing.context import BaseContext

            if isinstance(context, str):
                methods = multiprocessing.get_all_start_methods()
                if context not in methods:
                    raise ValueError(
                        "multiprocessing_context option should specify a valid start method in "
                        f"{methods!r}, but got multiprocessing_context={context!r}"
                    )
                context = multiprocessing.get_context(context)
            if not isinstance(context, BaseContext):
                raise TypeError(
                    "multiprocessing_context option should be a valid context object or a string specifying the start "
                    f"method, but got multiprocessing_context={context}"
                )
        self._context = context

    @property
    def _auto_collation(self):
        return self.batch_sampler is not None

    @property
    def _index_sampler(self):
        return self.batch_sampler if self._auto_collation else self.sampler

    def _fetcher_options(self):
        return self._is_stream, self._auto_collation, self.collate_fn, self.drop_last

    def __iter__(self):
        if not (self.persistent_workers and self.num_workers > 0):
            return _SingleProcessDataLoaderIter(self) if self.num_workers == 0 else _MultiProcessingDataLoaderIter(self)
        if self._iterator is None:
            self._iterator = _MultiProcessingDataLoaderIter(self)
        else:
            self._iterator.reset()
        return self._iterator

    def __len__(self):
        if not self._is_stream:
            return len(self._index_sampler)
        length = len(self.dataset)
        if self.batch_size is None:
            return length
        return length // self.batch_size if self.drop_last else -(-length // self.batch_size)


def _can_pin():
    from ... import cuda

    if cuda.is_available():
        return True
    warnings.warn(
        "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
        stacklevel=4,
    )
    return False


class _BaseDataLoaderIter:
    """One pass over a loader's batches. It does not hold the loader, which may hold it."""

    def __init__(self, loader):
        self._index_sampler = loader._index_sampler
        self._indices = iter(self._index_sampler)
        # Drawn also without workers, and not again for workers that stay: PyTorch's place in the stream of random numbers.
        self._base_seed = _C.empty((), dtype=_C.int64).random_(generator=loader.generator).item()

        self._pins = loader.pin_memory and _can_pin()

    def _pinned(self, batch):
        return pin_memory(batch) if self._pins else batch

    def __iter__(self):
        return self

    def __len__(self):
        return len(self._index_sampler)


class _SingleProcessDataLoaderIter(_BaseDataLoaderIter):
    """A pass without workers."""

    def __init__(self, loader):
        super().__init__(loader)
        if loader.timeout != 0:
            raise AssertionError("timeout is for loading in workers")
        self._fetcher = Fetcher(loader.dataset, *loader._fetcher_options())

    def __next__(self):
        return self._pinned(self._fetcher.fetch(next(self._indices)))


class _MultiProcessingDataLoaderIter(_BaseDataLoaderIter):
    """A pass with worker processes; `reset` begins the next one with the same processes.

    Batches are numbered when their indices are sent. `_owner` is the worker of each number that is on its way, `_early`
    holds what came before its turn, `_next_number` is whose turn it is.
    """

    def __init__(self, loader):
        super().__init__(loader)
        self._timeout = loader.timeout if loader.timeout > 0 else None
        self._prefetch_factor, self._in_order = loader.prefetch_factor, loader.in_order
        self._persistent = loader.persistent_workers
        self._workers, self._pipes = [], []
        self._stopped = False
        self._start(loader)
        self._start_pass()

    def _start(self, loader):
        import multiprocessing

        import_for_workers()
        context = loader.multiprocessing_context or multiprocessing
        for i in range(loader.num_workers):
            ours, theirs = context.Pipe()
            worker = context.Process(
                target=run_worker,
                args=(theirs, loader.dataset, loader._fetcher_options(), self._base_seed, i, loader.num_workers,
                      loader.worker_init_fn),
                daemon=True,
            )  # fmt: skip
            worker.start()
            theirs.close()
            self._workers.append(worker)
            self._pipes.append(ours)
        # Not a method: it has to run after this object is gone, and at exit.
        self._finalizer = weakref.finalize(self, _stop_workers, self._workers, self._pipes)

    def _start_pass(self):
        self._send_number = self._next_number = 0
        self._owner, self._early = {}, {}
        self._live = set(range(len(self._workers)))  # those whose stream goes on
        self._turn = 0
        for _ in range(self._prefetch_factor * len(self._workers)):
            self._send_one()

    def reset(self):
        """Begins the next pass: what is still on its way is thrown away."""
        self._indices = iter(self._index_sampler)
        for i in range(len(self._pipes)):
            self._tell(i, RESET)
        waiting = set(range(len(self._pipes)))
        while waiting:
            for i in self._ready(waiting):
                if self._pipes[i].recv()[0] == RESET:
                    waiting.discard(i)
        self._start_pass()

    def _tell(self, worker, message):
        try:
            self._pipes[worker].send(message)
        except (BrokenPipeError, ConnectionResetError):
            self._raise_dead()

    def _send_one(self):
        """Gives the next indices to the next worker in turn."""
        if not self._live:
            return
        while self._turn not in self._live:
            self._turn = (self._turn + 1) % len(self._workers)
        try:
            indices = next(self._indices)
        except StopIteration:
            return
        self._tell(self._turn, (self._send_number, indices))
        self._owner[self._send_number] = self._turn
        self._send_number += 1
        self._turn = (self._turn + 1) % len(self._workers)

    def _ready(self, workers):
        """Those of the workers that have sent something; waits, and raises when one of them has died."""
        from multiprocessing.connection import wait

        pipes = {self._pipes[i]: i for i in workers}
        ready = wait(list(pipes) + [self._workers[i].sentinel for i in workers], self._timeout)
        if not ready:
            raise RuntimeError(f"DataLoader timed out after {self._timeout} seconds")
        found = [pipes[p] for p in ready if p in pipes]
        if not found:
            self._raise_dead()
        return found

    def _raise_dead(self):
        from multiprocessing.connection import wait

        gone = wait([w.sentinel for w in self._workers], 1.0)  # a worker's pipe may close a moment before it is gone
        pids = ", ".join(str(w.pid) for w in self._workers if w.sentinel in gone)
        self._shutdown_workers()
        raise RuntimeError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly")

    def _receive(self):
        """Takes in at least one result."""
        for i in self._ready(set(self._owner.values())):
            try:
                number, result = self._pipes[i].recv()
            except (EOFError, ConnectionResetError):
                self._raise_dead()
            del self._owner[number]
            self._early[number] = result
            if isinstance(result, str) and result == END:
                self._live.discard(i)

    def __next__(self):
        while self._next_number < self._send_number:
            while self._next_number not in self._early:
                if not self._in_order and self._early:
                    break
                self._receive()
            number = self._next_number if self._next_number in self._early else next(iter(self._early))
            result = self._early.pop(number)
            while self._next_number < self._send_number and not (
                self._next_number in self._early or self._next_number in self._owner
            ):
                self._next_number += 1
            self._send_one()
            if isinstance(result, str) and result == END:
                continue
            if isinstance(result, WorkerError):
                result.reraise()
            return self._pinned(result)
        if not self._persistent:
            self._shutdown_workers()
        raise StopIteration

    def _shutdown_workers(self):
        if not self._stopped:
            self._stopped = True
            self._finalizer()


def _stop_workers(workers, pipes):
    """Asks the workers to stop, and ends those that do not."""
    for pipe in pipes:
        try:
            pipe.send(None)
        except OSError:
            pass
    for worker in workers:
        worker.join(1.0)
        if worker.is_alive():
            worker.terminate()
            worker.join()
    for pipe in pipes:
        pipe.close()
