"""Small objects of PyTorch's core that libraries name: keys of its dispatcher, tags of operators, loggers, typed containers,
storages by number, futures of calls. Tests: tests/parity/test_schema_parity.py."""

import threading
import time

from . import _C
from ._schema import BoolType, ComplexType, DictType, FloatType, IntType, ListType, StringType, TensorType


class _Member:
    """One of the values of a class that counts them."""

    def __init__(self, name, value):
        self.name, self.value = name, value

    def __repr__(self):
        return f"<{type(self).__name__}.{self.name}: {self.value}>"

    def __str__(self):
        return f"{type(self).__name__}.{self.name}"

    def __int__(self):
        return self.value

    __index__ = __int__

    def __eq__(self, other):
        return self is other or (type(other) is type(self) and other.value == self.value)

    def __hash__(self):
        return hash(self.value)

    def __reduce__(self):
        return getattr, (type(self), self.name)


def _counted(name, pairs):
    kind = type(name, (_Member,), {"__module__": "torch", "__members__": {}})
    for label, value in pairs:
        names = label.split("/")  # several: one member
        member = kind(names[0], value)
        for alias in names:
            kind.__members__[alias] = member
            setattr(kind, alias, member)
    return kind


_KEYS = """
    0:Undefined 1:Dense 5:Quantized 8:Sparse 9:SparseCsr 10:NestedTensor 11:BackendSelect 13:Python
    14:FuncTorchDynamicLayerBackMode 15:Functionalize 16:Conjugate 17:Negative 18:ZeroTensor 19:ADInplaceOrView
    20:AutogradOther 21:AutogradFunctionality 22:AutogradNestedTensor 24:AutocastCPU 27:AutocastXPU 28:AutocastIPU
    29:AutocastHPU 31:AutocastMPS 32:AutocastCUDA 33:AutocastPrivateUse1 34:FuncTorchBatched 36:FuncTorchVmapMode
    39:FuncTorchGradWrapper 41:PythonTLSSnapshot 42:FuncTorchDynamicLayerFrontMode 45:PreDispatch
    46:PythonDispatcher 48:StartOfDenseBackends 49:CPU 50:CUDA 51:HIP 52:XLA 53:MPS 54:IPU 55:XPU 56:HPU 57:VE
    58:Lazy 59:MTIA 60:MAIA 61:PrivateUse1 62:PrivateUse2 63:PrivateUse3 64:Meta/EndOfDenseBackends
    65:StartOfQuantizedBackends 66:QuantizedCPU 67:QuantizedCUDA 68:QuantizedHIP 69:QuantizedXLA 70:QuantizedMPS
    71:QuantizedIPU 72:QuantizedXPU 73:QuantizedHPU 74:QuantizedVE 75:QuantizedLazy 76:QuantizedMTIA
    77:QuantizedMAIA 78:QuantizedPrivateUse1 79:QuantizedPrivateUse2 80:QuantizedPrivateUse3
    81:QuantizedMeta/EndOfQuantizedBackends 82:StartOfSparseBackends 83:SparseCPU 84:SparseCUDA 85:SparseHIP
    86:SparseXLA 87:SparseMPS 88:SparseIPU 89:SparseXPU 90:SparseHPU 91:SparseVE 92:SparseLazy 93:SparseMTIA
    94:SparseMAIA 95:SparsePrivateUse1 96:SparsePrivateUse2 97:SparsePrivateUse3 98:SparseMeta/EndOfSparseBackends
    99:StartOfSparseCsrBackends 100:SparseCsrCPU 101:SparseCsrCUDA 102:SparseCsrHIP 103:SparseCsrXLA
    104:SparseCsrMPS 105:SparseCsrIPU 106:SparseCsrXPU 107:SparseCsrHPU 108:SparseCsrVE 109:SparseCsrLazy
    110:SparseCsrMTIA 111:SparseCsrMAIA 112:SparseCsrPrivateUse1 113:SparseCsrPrivateUse2 114:SparseCsrPrivateUse3
    115:SparseCsrMeta/EndOfSparseCsrBackends 116:StartOfNestedTensorBackends 117:NestedTensorCPU
    118:NestedTensorCUDA 119:NestedTensorHIP 120:NestedTensorXLA 121:NestedTensorMPS 122:NestedTensorIPU
    123:NestedTensorXPU 124:NestedTensorHPU 125:NestedTensorVE 126:NestedTensorLazy 127:NestedTensorMTIA
    128:NestedTensorMAIA 129:NestedTensorPrivateUse1 130:NestedTensorPrivateUse2 131:NestedTensorPrivateUse3
    132:NestedTensorMeta/EndOfNestedTensorBackends 133:StartOfAutogradFunctionalityBackends 134:AutogradCPU
    135:AutogradCUDA 136:AutogradHIP 137:AutogradXLA 138:AutogradMPS 139:AutogradIPU 140:AutogradXPU 141:AutogradHPU
    142:AutogradVE 143:AutogradLazy 144:AutogradMTIA 145:AutogradMAIA 146:AutogradPrivateUse1
    147:AutogradPrivateUse2 148:AutogradPrivateUse3 149:AutogradMeta/EndOfAutogradFunctionalityBackends 150:Autograd
    151:CompositeImplicitAutograd 152:FuncTorchBatchedDecomposition 153:CompositeImplicitAutogradNestedTensor
    154:CompositeExplicitAutograd 155:CompositeExplicitAutogradNonFunctional
"""
_TAGS = """
    core cudagraph_unsafe data_dependent_output dynamic_output_shape flexible_layout generated inplace inplace_view
    maybe_aliasing_or_mutating needs_contiguous_strides needs_exact_strides needs_fixed_stride_order
    nondeterministic_bitwise nondeterministic_seeded out out_variant pointwise pt2_compliant_tag reduction view_copy
"""
DispatchKey = _counted("DispatchKey", [(k.partition(":")[2], int(k.partition(":")[0])) for k in _KEYS.split()])
Tag = _counted("Tag", [(name, value) for value, name in enumerate(_TAGS.split())])
AggregationType = _counted("AggregationType", [("SUM", 0), ("AVG", 1)])
SUM, AVG = AggregationType.SUM, AggregationType.AVG
PRIVATE_OPS, USE_GLOBAL_DEPS, USE_RTLD_GLOBAL_WITH_LIBTORCH, TYPE_CHECKING = ("unique_dim",), True, False, False


class DispatchKeySet:
    """A set of dispatch keys: DispatchKeySet(DispatchKey.CPU).has(DispatchKey.CPU)"""

    __module__ = "torch"

    def __init__(self, *keys):
        self._keys = frozenset(keys)

    def add(self, key):
        return DispatchKeySet(*self._keys, key)

    def remove(self, key):
        return DispatchKeySet(*(self._keys - {key}))

    def has(self, key):
        return key in self._keys

    def __or__(self, other):
        return DispatchKeySet(*(self._keys | other._keys))

    def __and__(self, other):
        return DispatchKeySet(*(self._keys & other._keys))

    def __sub__(self, other):
        return DispatchKeySet(*(self._keys - other._keys))

    def __eq__(self, other):
        return isinstance(other, DispatchKeySet) and other._keys == self._keys

    def __hash__(self):
        return hash(self._keys)

    def __iter__(self):
        return iter(sorted(self._keys, key=int))

    def highestPriorityTypeId(self):  # noqa: N802
        """The key that a call would go to first."""
        return max(self._keys, key=int, default=DispatchKey.Undefined)

    def __repr__(self):
        return f"DispatchKeySet({', '.join(key.name for key in self)})"


class ExcludeDispatchKeyGuard:
    """Accepted for compatibility: wick's layers have no such keys."""

    __module__ = "torch"

    def __init__(self, keys):
        self.keys = keys

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


# ---- loggers ----


class LoggerBase:
    """Where counters are kept."""

    __module__ = "torch._C"


class NoopLogger(LoggerBase):
    """Nowhere."""

    __module__ = "torch"


class LockingLogger(LoggerBase):
    """By name, for all threads."""

    __module__ = "torch"

    def __init__(self):
        self._lock, self._values, self._kinds = threading.Lock(), {}, {}

    def add_stat_value(self, name, value):
        """One more value of a counter."""
        with self._lock:
            total, count = self._values.get(name, (0, 0))
            self._values[name] = (total + value, count + 1)

    def set_aggregation_type(self, name, kind):
        """Whether get_counter_val gives sums or means."""
        self._kinds[name] = kind

    def get_counter_val(self, name):
        """The sum of a counter's values, or their mean."""
        total, count = self._values.get(name, (0, 0))
        return total // count if self._kinds.get(name) == AVG and count else total


class FatalError(Exception):
    """An error that nothing can go on after."""

    __module__ = "torch"


class ErrorReport(Exception):
    """What is wrong with a program, and where."""

    __module__ = "torch"

    def what(self):
        """The text."""
        return str(self)

    @staticmethod
    def call_stack():
        """Where the compiler was: nowhere."""
        return ""


# ---- containers of one type of value ----

_TYPES = {bool: BoolType, int: IntType, float: FloatType, complex: ComplexType, str: StringType, _C.Tensor: TensorType}


def _type_of(values, what, error):
    kinds = []
    for value in values:
        kind = next((k for k in _TYPES if type(value) is k or (k is _C.Tensor and isinstance(value, k))), None)
        if kind is None:
            raise error(f"Unable to infer type of {what}: Only tensors and numbers have a type here")
        if kinds and kind is not kinds[0]:
            first, other = _TYPES[kinds[0]].get(), _TYPES[kind].get()
            raise error(
                f"Unable to infer type of {what}: List inputs to traced functions must have consistent element type. "
                f"Found {first} and {other}"
            )
        kinds.append(kind)
    return kinds[0] if kinds else None


def _jit_error(text):
    from .jit import Error

    return Error(text)


class _Iterator:
    def __init__(self, items):
        self._items = iter(items)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self._items)


ScriptListIterator = type("ScriptListIterator", (_Iterator,), {"__module__": "torch"})
ScriptDictIterator = type("ScriptDictIterator", (_Iterator,), {"__module__": "torch"})
ScriptDictKeyIterator = type("ScriptDictKeyIterator", (_Iterator,), {"__module__": "torch"})


class ScriptList:
    """A list of values of one type."""

    __module__ = "torch"

    def __init__(self, values):
        values = list(values)
        self._kind, self._values = _type_of(values, "list", _jit_error), values

    def _checked(self, value):
        if self._kind is not None and not isinstance(value, self._kind):
            raise TypeError
        self._kind = self._kind or _type_of([value], "list", _jit_error)
        return value

    def type(self):
        return ListType(_TYPES[self._kind].get() if self._kind else TensorType.get())

    def __repr__(self):
        return repr(self._values)

    def __len__(self):
        return len(self._values)

    def __bool__(self):
        return bool(self._values)

    def __iter__(self):
        return ScriptListIterator(self._values)

    def __contains__(self, value):
        return value in self._values

    def __getitem__(self, index):
        if isinstance(index, slice):
            return ScriptList(self._values[index])
        if not -len(self._values) <= index < len(self._values):
            raise IndexError
        return self._values[index]

    def __setitem__(self, index, value):
        self._values[index] = ScriptList(value)._values if isinstance(index, slice) else self._checked(value)

    def __delitem__(self, index):
        del self._values[index]

    def __eq__(self, other):
        return self._values == (other._values if isinstance(other, ScriptList) else other)

    __hash__ = None

    def append(self, value):
        self._values.append(self._checked(value))

    def extend(self, values):
        for value in values:
            self.append(value)

    def insert(self, index, value):
        self._values.insert(index, self._checked(value))

    def pop(self, index=-1):
        return self._values.pop(index)

    def clear(self):
        self._values.clear()

    def remove(self, value):
        self._values.remove(value)

    def count(self, value):
        return self._values.count(value)


class ScriptDict:
    """A dict from values of one type to values of one type."""

    __module__ = "torch"

    def __init__(self, values):
        self._key, self._value = _type_of(values, "dict", _jit_error), _type_of(values.values(), "dict", _jit_error)
        self._values = dict(values)

    def type(self):
        kinds = (_TYPES[k].get() if k else TensorType.get() for k in (self._key, self._value))
        return DictType(*kinds)

    def __repr__(self):
        return "{" + ", ".join(f"{k}: {v}" for k, v in self._values.items()) + "}"

    def __len__(self):
        return len(self._values)

    def __bool__(self):
        return bool(self._values)

    def __iter__(self):
        return ScriptDictKeyIterator(self._values)

    def __contains__(self, key):
        return key in self._values

    def __getitem__(self, key):
        if key not in self._values:
            raise KeyError("")
        return self._values[key]

    def __setitem__(self, key, value):
        if self._key and not (isinstance(key, self._key) and isinstance(value, self._value)):
            raise TypeError
        self._values[key] = value

    def __delitem__(self, key):
        del self._values[key]

    def items(self):
        return ScriptDictIterator(self._values.items())

    def keys(self):
        return ScriptDictKeyIterator(self._values)


# ---- storages of an archive, by number ----


class SerializationStorageContext:
    """Numbers for storages, the same for the same storage."""

    __module__ = "torch._C"

    def __init__(self):
        self._numbers, self._kept = {}, []

    def has_storage(self, storage):
        return storage._cdata in self._numbers

    def get_or_add_storage(self, storage):
        if storage._cdata not in self._numbers:
            self._numbers[storage._cdata] = len(self._kept)
            self._kept.append(storage)
        return self._numbers[storage._cdata]


class DeserializationStorageContext:
    """Storages by name."""

    __module__ = "torch._C"

    def __init__(self):
        self._storages = {}

    def add_storage(self, name, storage):
        if name in self._storages:
            raise RuntimeError(f"There is a storage with the name {name} already")
        self._storages[name] = storage

    def has_storage(self, name):
        return name in self._storages

    def get_storage(self, name):
        return self._storages[name]


# ---- calls that are measured ----


class BenchmarkConfig:
    """How ThroughputBenchmark runs."""

    __module__ = "torch"

    def __init__(self):
        self.num_calling_threads, self.num_worker_threads = 1, 1
        self.num_warmup_iters, self.num_iters, self.profiler_output_path = 1, 100, ""


class BenchmarkExecutionStats:
    """What ThroughputBenchmark found."""

    __module__ = "torch"

    def __init__(self, latency_avg_ms, num_iters):
        self.latency_avg_ms, self.num_iters = latency_avg_ms, num_iters


class ThroughputBenchmark:
    """Calls of a module from several threads: add_input(...), run_once(...), benchmark(config)."""

    __module__ = "torch"

    def __init__(self, module):
        self._module, self._inputs = module, []

    def add_input(self, *args, **kwargs):
        """One more set of arguments, which threads take in turn."""
        self._inputs.append((args, kwargs))

    def run_once(self, *args, **kwargs):
        """One call."""
        return self._module(*args, **kwargs)

    def _run(self, count, spent):
        start = time.perf_counter()
        for place in range(count):
            args, kwargs = self._inputs[place % len(self._inputs)]
            self._module(*args, **kwargs)
        spent.append(time.perf_counter() - start)

    def benchmark(self, config):
        """How long a call takes on average."""
        if not self._inputs:
            raise RuntimeError("Please provide benchmark inputs.Did you forget to call add_input()? ")
        self._run(config.num_warmup_iters, [])
        spent, each = [], max(1, config.num_iters // config.num_calling_threads)
        threads = [threading.Thread(target=self._run, args=(each, spent)) for _ in range(config.num_calling_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        calls = each * config.num_calling_threads
        return BenchmarkExecutionStats(1e3 * sum(spent) / calls, calls)


class qscheme:  # noqa: N801
    """How a tensor would be quantized: torch.per_tensor_affine and the like, which are compared by identity."""

    __module__ = "torch"

    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return f"torch.{self._name}"

    def __reduce__(self):
        return self._name


per_tensor_affine, per_channel_affine = qscheme("per_tensor_affine"), qscheme("per_channel_affine")
per_tensor_symmetric, per_channel_symmetric = qscheme("per_tensor_symmetric"), qscheme("per_channel_symmetric")
per_channel_affine_float_qparams = qscheme("per_channel_affine_float_qparams")


def dequantize(input):
    """Tensors that are not quantized as float32: a tensor, or a list of them."""
    if isinstance(input, (list, tuple)):
        return [t.to(_C.float32) for t in input]
    return input.to(_C.float32)


def native_norm(input, p=2, dim=None, keepdim=False, dtype=None):
    """The norm of all elements of a sparse tensor."""
    if input.layout is _C.strided:
        raise NotImplementedError("Could not run 'aten::native_norm' with arguments from the 'CPU' backend.")
    if dim:
        raise RuntimeError("native_norm_sparse: only full reductions are supported")
    values = input.coalesce().values() if input.is_sparse else input.values()
    return values.to(dtype or values.dtype).norm(p)


def get_file_path(*parts):
    """A path in the folder that packages are installed in."""
    import os

    return os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), *parts)


def prepare_multiprocessing_environment(path):
    """Nothing has to be prepared."""


def fork(func, *args, **kwargs):
    """The future of a call, which is done at once."""
    from .futures import Future

    future = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future):
    """The value of a future."""
    return future.wait()
