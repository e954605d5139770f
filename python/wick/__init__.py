"""wick: the PyTorch 2 compiler stack in C, with PyTorch's Python API. `import wick as torch` runs PyTorch programs."""

import importlib as _importlib
import os as _os
import sys as _sys

from . import _C
from ._C import *  # noqa: F403  operators, dtypes, grad modes: what the core lists in its __all__
from ._tensor import allclose, broadcast_shapes, equal, nonzero, norm, numel  # noqa: F401  also gives Tensor its Python methods
from .version import __version__  # noqa: F401  PyTorch's, which programs ask for; wick's own is wick.version.wick

_C._look_for_lapack_in(":".join(p for p in _sys.path if p.endswith("-packages")))

# Loaded when first used, so that `import wick` costs milliseconds.
_SUBMODULES = frozenset(
    (
        "_C __config__ _custom_ops _decomp _dynamo _higher_order_ops _jit_internal _logging _subclasses _utils accelerator amp ao autograd backends "
        "compiler cpu cuda distributed distributions export fft functional func futures fx gguf hub jit library linalg masked monitor mps multiprocessing nn onnx optim package "
        "overrides profiler quantization random return_types safetensors serialization signal sparse special storage testing torch_version types "
        "utils version xpu"
    ).split()
)
_FOREACH = (
    "abs abs_ acos acos_ add add_ addcdiv addcdiv_ addcmul addcmul_ asin asin_ atan atan_ ceil ceil_ clamp_max clamp_max_ "
    "clamp_min clamp_min_ clone copy_ cos cos_ cosh cosh_ div div_ erf erf_ erfc erfc_ exp exp_ expm1 expm1_ floor floor_ frac "
    "frac_ lerp lerp_ lgamma lgamma_ log log10 log10_ log1p log1p_ log2 log2_ log_ max maximum maximum_ minimum minimum_ mm mul "
    "mul_ neg neg_ pow pow_ reciprocal reciprocal_ round round_ rsqrt rsqrt_ sigmoid sigmoid_ sign sign_ sin sin_ sinh sinh_ "
    "sqrt sqrt_ sub sub_ tan tan_ tanh tanh_ trunc trunc_ zero_"
)
_LAZY = {
    "save": "serialization",
    **dict.fromkeys(
        (
            "BFloat16Storage BoolStorage ByteStorage CharStorage ComplexDoubleStorage ComplexFloatStorage DoubleStorage "
            "FloatStorage HalfStorage IntStorage LongStorage ShortStorage Storage StorageBase TypedStorage"
        ).split(),
        "storage",
    ),
    **dict.fromkeys(
        (
            "AnyType Argument AwaitType BoolType ClassType ComplexType DeviceObjType DictType EnumType FloatType FunctionSchema "
            "FutureType InferredType IntType InterfaceType ListType NoneType NumberType OptionalType PyObjectType RRefType "
            "StreamObjType StringType SymBoolType SymIntType TensorType TupleType Type UnionType parse_schema unify_type_list"
        ).split(),
        "_schema",
    ),
    **dict.fromkeys(
        (
            "AVG AggregationType BenchmarkConfig BenchmarkExecutionStats DeserializationStorageContext DispatchKey "
            "DispatchKeySet ErrorReport ExcludeDispatchKeyGuard FatalError LockingLogger LoggerBase NoopLogger PRIVATE_OPS SUM "
            "ScriptDict ScriptDictIterator ScriptDictKeyIterator ScriptList ScriptListIterator SerializationStorageContext "
            "TYPE_CHECKING Tag dequantize native_norm per_channel_affine per_channel_affine_float_qparams per_channel_symmetric "
            "per_tensor_affine per_tensor_symmetric qscheme ThroughputBenchmark USE_GLOBAL_DEPS USE_RTLD_GLOBAL_WITH_LIBTORCH fork get_file_path "
            "prepare_multiprocessing_environment wait"
        ).split(),
        "_core_objects",
    ),
    **dict.fromkeys(
        (
            "batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt batch_norm_gather_stats "
            "batch_norm_gather_stats_with_counts batch_norm_stats batch_norm_update_stats"
        ).split(),
        "functions.batch_norm_parts",
    ),
    **dict.fromkeys(
        (
            "ccol_indices_copy col_indices_copy crow_indices_copy dsmm hsmm hspmm indices_copy resize_as_sparse_ "
            "row_indices_copy saddmm smm sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor spmm "
            "sspaddmm values_copy"
        ).split(),
        "sparse",
    ),
    **{f"_foreach_{name}": "functions.lists" for name in _FOREACH.split()},
    "hash_tensor": "functions.hashes",
    "embedding_bag": "functions.bags",
    "windows": "signal",
    "FileCheck": "testing",
    "load": "serialization",
    "from_file": "storage",
    **dict.fromkeys(("ScriptModule", "ScriptFunction"), "jit"),
    "get_device_module": "_utils",
    **dict.fromkeys(("PyTorchFileReader", "PyTorchFileWriter"), "serialization.records"),
    **dict.fromkeys(
        (
            "use_deterministic_algorithms are_deterministic_algorithms_enabled set_deterministic_debug_mode "
            "is_deterministic_algorithms_warn_only_enabled get_deterministic_debug_mode"
        ).split(),
        "_deterministic",
    ),
    "svd_lowrank": "_lowrank",
    "pca_lowrank": "_lowrank",
    "lobpcg": "_lobpcg",
    "compile": "compiler",
    "optimize": "_optimize",
    "vmap": "_functorch.apis",
    "ops": "_ops",
    **dict.fromkeys(("SymInt", "SymFloat", "SymBool"), "_symint"),
    "_assert_async": "_utils",
    "is_anomaly_enabled": "autograd.anomaly_mode",
    "is_anomaly_check_nan_enabled": "autograd.anomaly_mode",
    "autocast": "amp.autocast_mode",
    "AcceleratorError": "cuda",
    "OutOfMemoryError": "cuda",
    **dict.fromkeys(("Stream", "Event"), "cuda"),
    **dict.fromkeys(
        (
            "cholesky cholesky_inverse cholesky_solve det inverse logdet lu_solve lu_unpack matrix_exp matrix_power orgqr "
            "ormqr pinverse qr slogdet svd triangular_solve"
        ).split(),
        "functions.linear_algebra",
    ),
    **dict.fromkeys(("istft", "stft"), "functions.spectra"),
    **dict.fromkeys(
        ("empty_permuted empty_strided grid_sampler grid_sampler_2d grid_sampler_3d").split(),
        "functions.statistics",
    ),
    **dict.fromkeys(
        (
            "bit bits16 bits1x8 bits2x4 bits4x2 bits8 chalf complex32 float4_e2m1fn_x2 "
            "int1 int2 int3 int4 int5 int6 int7 uint1 uint2 uint3 uint4 uint5 uint6 uint7"
        ).split(),
        "_absent_dtypes",
    ),
    **dict.fromkeys(
        (
            "affine_grid_generator binary_cross_entropy_with_logits cosine_embedding_loss frobenius_norm hinge_embedding_loss "
            "kl_div margin_ranking_loss native_channel_shuffle norm_except_dim nuclear_norm pairwise_distance "
            "poisson_nll_loss triplet_margin_loss"
        ).split(),
        "functions.losses_by_number",
    ),
    **dict.fromkeys(
        (
            "argwhere as_strided_ detach_ get_device is_distributed is_inference is_nonzero is_same_size is_signed is_storage "
            "is_vulkan_available nonzero_static range segment_reduce view_as_complex_copy view_as_real_copy"
        ).split(),
        "functions.predicates",
    ),
    "resize_as_": "functions.statistics",
    "thread_safe_generator": "random",
    "GradScaler": "amp.grad_scaler",
    "lu": "functions.linear_algebra",
    **dict.fromkeys("eig lstsq matrix_rank solve symeig".split(), "functions.removed"),
    **dict.fromkeys(
        (
            "autocast_decrement_nesting autocast_increment_nesting classproperty compiled_with_cxx11_abi "
            "get_autocast_ipu_dtype get_autocast_xla_dtype has_lapack has_mkl has_openmp has_spectral init_num_threads "
            "is_autocast_ipu_enabled is_autocast_xla_enabled is_warn_always_enabled set_anomaly_enabled "
            "set_autocast_ipu_dtype set_autocast_ipu_enabled set_autocast_xla_dtype set_autocast_xla_enabled "
            "set_default_tensor_type set_float32_matmul_precision set_flush_denormal set_warn_always to_dlpack "
            "get_float32_matmul_precision"
        ).split(),
        "_switches",
    ),
    **dict.fromkeys(
        (
            "sym_constrain_range sym_constrain_range_for_size sym_float sym_fresh_size sym_int sym_ite sym_max sym_min "
            "sym_not sym_sqrt sym_sum"
        ).split(),
        "_symbolic_numbers",
    ),
    **dict.fromkeys(("cond", "while_loop"), "_higher_order_ops.control_flow"),
    **dict.fromkeys(
        (
            "_check _check_index _check_is_size _check_not_implemented _check_tensor_all _check_tensor_all_with _check_type "
            "_check_value _check_with"
        ).split(),
        "_checks",
    ),
    **dict.fromkeys(
        (
            "atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors cartesian_prod cdist chain_matmul ctc_loss "
            "einsum is_conj is_neg meshgrid resolve_conj resolve_neg tensordot "
            "unique unique_consecutive unravel_index"
        ).split(),
        "functional",
    ),
}
_TENSOR_TYPES = frozenset("Float Double Half BFloat16 Byte Char Short Int Long Bool".split())
pi, inf, nan, e, newaxis = 3.141592653589793, 1e999, 1e999 - 1e999, 2.718281828459045, None


def _assert(condition, message):
    """assert as a function, which captured code keeps as one."""
    kind = type(condition)
    if kind is not bool and kind is not Tensor and _C._has_torch_function_variadic(condition):  # noqa: F405
        return _C._dispatch_torch_function(_assert, (condition,), (condition, message), {})
    assert condition, message


def typename(obj):
    """ "torch.LongTensor", or the name of an object's class with its module.

    >>> typename([])
    'list'
    """
    if isinstance(obj, Tensor):  # noqa: F405
        return obj.type()
    module, name = getattr(obj, "__module__", "") or "", getattr(obj, "__qualname__", "")
    if not name:
        module, name = type(obj).__module__, type(obj).__qualname__
    return name if module in ("", "builtins") else f"{module}.{name}"


def _of_other_names(name):
    """What has another name where it stands."""
    if name == "torch":
        return _importlib.import_module(__name__)
    module, other = {"Future": ("futures", "_Future"), "JITException": ("jit", "Error")}[name]
    return globals().setdefault(name, getattr(_importlib.import_module(f"{__name__}.{module}"), other))


def __getattr__(name):
    if name in _SUBMODULES:
        return _importlib.import_module(f"{__name__}.{name}")  # the import system puts it into this module
    if name in _LAZY:
        value = getattr(_importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    if name in ("Future", "JITException", "torch"):
        return _of_other_names(name)
    if name.endswith("Tensor") and name[:-6] in _TENSOR_TYPES:
        from ._tensor_types import make

        return globals().setdefault(name, make(f"torch.{name}"))
    if name.startswith("_") and not name.startswith("__") and name in vars(_C):
        value = getattr(_C, name)
        if callable(value):
            globals()[name] = value  # captured code guards what stands here; what is no function may change
        return value
    from ._names import missing

    raise missing(__name__, name)


def _name_of_the_core(name):
    """_C.__getattr__: names that libraries read of PyTorch's extension module and that are Python here."""
    _core_names = _importlib.import_module("._core_names", __name__)

    try:
        value = getattr(_core_names, name)
        setattr(_C, name, value)  # found as any other from now on, which captured code can guard
        return value
    except AttributeError:
        raise AttributeError(f"module 'wick._C' has no attribute '{name}'") from None


_C.__getattr__ = _name_of_the_core


def __dir__():
    return sorted({*globals(), *_SUBMODULES, *_LAZY})


if "TORCH_LOGS" in _os.environ:
    from ._logging._internal import _init_logs

    _init_logs()  # PyTorch's error for what is no name
    del _init_logs
