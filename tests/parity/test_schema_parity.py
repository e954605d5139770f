"""Types, schemas, futures, typed storages, counted classes and the like against PyTorch: what expressions give, or their errors."""

import importlib
import re

import pytest
from compare import torch, words

import wick

SCHEMAS = [
    "aten::add.Tensor(Tensor(a!) self, Tensor other, *, Scalar alpha=1, int[2] s=[1, 2], str? m=None, bool b=True, float f=0.5, "
    "str q='x', Tensor(a)[] l) -> (Tensor(a!) out, Tensor)",
    "my::f(Tensor x, int n=1) -> Tensor",
    "my::g(Tensor?[] xs, float[]? s=None, *, ScalarType? dtype=None) -> ()",
    "f(Dict(str, int) a, (int, str) t) -> Tensor[]",
]
INT, STR, NUM = "IntType.get()", "StringType.get()", "NumberType.get()"
KINDS = [
    *(f"{n}Type.get()" for n in ("Any", "Bool", "Complex", "DeviceObj", "Float", "Int", "None", "Number", "PyObject")),
    *(f"{n}Type.get()" for n in ("StreamObj", "String", "SymBool", "SymInt", "Tensor")),
    f"ListType({INT})", "ListType.ofTensors()", "ListType.ofFloats()", f"OptionalType({INT})", "OptionalType.ofTensor()",
    f"TupleType([{INT}, {STR}])", f"DictType({STR}, {INT})", f"FutureType({INT})", f"RRefType({INT})", f"AwaitType({INT})",
    f"UnionType([{INT}, {STR}])", f"ListType(ListType({INT}))", "ListType(OptionalType(TensorType.get()))",
]  # fmt: skip
CALLS = [
    *(f"(str({k}), repr({k}), {k}.annotation_str, {k}.kind(), {k}.is_interface_type())" for k in KINDS),
    *(f"{a}.isSubtypeOf({b})" for a in (INT, "NoneType.get()", "FloatType.get()", STR, "ListType.ofInts()")
      for b in (NUM, "AnyType.get()", f"OptionalType({INT})", INT, "ListType.ofInts()")),
    f"ListType({INT}) == ListType({INT}), ListType({INT}) == ListType({STR}), {INT} == {NUM}",
    f"DictType({STR}, {INT}).getKeyType(), DictType({STR}, {INT}).getValueType(), TupleType([{INT}]).elements()",
    f"unify_type_list([{INT}, {INT}]), unify_type_list([{INT}, NoneType.get()])", f"unify_type_list([{INT}, FloatType.get()])",
    *(f"str(parse_schema({s!r}))" for s in SCHEMAS),
    *(f"(lambda f: [(a.name, str(a.type), a.default_value, a.has_default_value(), a.kwarg_only, a.N, a.is_out, a.alias_info and "
      f"(a.alias_info.is_write, a.alias_info.before_set, a.alias_info.after_set)) for a in f.arguments + f.returns])"
      f"(parse_schema({s!r}))" for s in SCHEMAS),
    *(f"(lambda f: (f.name, f.overload_name, f.is_mutable, f.is_backward_compatible_with(f)))(parse_schema({s!r}))" for s in SCHEMAS),
    "parse_schema('f(Tensor x, int n=1) -> Tensor').is_backward_compatible_with(parse_schema('f(Tensor x) -> Tensor'))",
    "parse_schema('f(Tensor x) -> Tensor').is_backward_compatible_with(parse_schema('f(Tensor x, int n=1) -> Tensor'))",
    "repr(Tag.core), int(Tag.pointwise.value), Tag.pointwise.name, repr(SUM), AVG == AggregationType.AVG",
    "repr(DispatchKey.CPU), str(DispatchKey.Autograd), DispatchKey.Meta.value, DispatchKey.Undefined.value",
    "repr(DispatchKeySet(DispatchKey.CPU) | DispatchKeySet(DispatchKey.AutogradCPU))",
    "DispatchKeySet(DispatchKey.CPU).add(DispatchKey.Meta).highestPriorityTypeId().name, "
    "DispatchKeySet(DispatchKey.CPU).has(DispatchKey.CPU), DispatchKeySet(DispatchKey.CPU).has(DispatchKey.Meta)",
    "repr(ScriptList([1, 2])), list(ScriptList([1, 2])), len(ScriptList([3])), ScriptList([1, 2])[1], 2 in ScriptList([1, 2])",
    "ScriptList([1, 'a'])", "ScriptList([1, 2])[5]", "ScriptList([1]).append('x')", "repr(ScriptDict({'a': 1}))",
    "list(ScriptDict({'a': 1}).items()), list(ScriptDict({'a': 1}).keys()), list(ScriptDict({'a': 1})), ScriptDict({'a': 1})['a']",
    "ScriptDict({'a': 1})['b']", "type(iter(ScriptList([1]))).__name__, type(iter(ScriptDict({'a': 1}))).__name__",
    "BenchmarkConfig().num_iters, BenchmarkConfig().num_calling_threads, BenchmarkConfig().num_warmup_iters",
    "FileCheck().check('a').check_next('b').check_same('c').check_not('d').run('xa\\nb c\\n')",
    "FileCheck().check_count('a', 2, exactly=True).run('a a')", "FileCheck().check_dag('b').check_dag('a').check('c').run('a b c')",
    "FileCheck().check_regex('a+b').run('xaab')",
]  # fmt: skip
FAILING_CHECKS = [
    "FileCheck().check('a').run('b')", "FileCheck().check_not('a').run('a')", "FileCheck().check('a').check('a').run('a')",
    "FileCheck().check_count('a', 2, exactly=True).run('a a a')", "FileCheck().check('a').check_next('c').run('a\\nb\\nc')",
    "FileCheck().check('a').check_same('c').run('a\\nc')", "FileCheck().check('a').check_not('b').check('c').run('a b c')",
]  # fmt: skip
STORAGES = [
    "FloatStorage([1, 2, 3])", "FloatStorage([1, 2]).double()", "DoubleStorage([1.5]).long()", "FloatStorage.dtype",
    "FloatStorage([1, 2]).type()", "FloatStorage([1, 2]).tolist()", "isinstance(tensor([1.0]).storage(), FloatStorage)",
    "isinstance(tensor([1]).storage(), FloatStorage)", "tensor([1.0]).storage_type()", "is_storage(FloatStorage(2))",
    "FloatStorage(2).fill_(3)[0]", "FloatStorage(2).copy_(DoubleStorage([1, 2]))", "FloatStorage(2).copy_(FloatStorage([1, 2]))",
    "FloatStorage([1, 2]).pickle_storage_type()", "FloatStorage([1, 2]).is_cuda", "FloatStorage([1, 2])[0:1]", "FloatStorage('a')",
    "FloatStorage(1, 2)", "tensor([]).set_(FloatStorage([1, 2]))", "TypedStorage([1, 2], dtype=int8)", "Storage is FloatStorage",
    "ComplexFloatStorage([1, 2j])", "BoolStorage([True, False]).size()", "HalfStorage(3).nbytes()", "len(LongStorage())",
    "TypedStorage(wrap_storage=LongStorage([1]).untyped(), dtype=int32).tolist()", "ShortStorage([1, 2]).element_size()",
]  # fmt: skip
FUTURES = [
    "(lambda f: (f.done(), f.set_result(3), f.done(), f.wait(), f.value()))(futures.Future())",
    "(lambda f: (f.set_result(3), f.then(lambda g: g.value() + 1).wait()))(futures.Future())",
    "(lambda f, seen: (f.add_done_callback(lambda g: seen.append(g.value())), f.set_result(7), seen))(futures.Future(), [])",
    "(lambda f: (f.set_exception(ValueError('no')), f.wait()))(futures.Future())",
    "(lambda f: f.set_exception('no'))(futures.Future())",
    "(lambda f: (f.set_result(1), futures.wait_all([f, f]), [g.value() for g in futures.collect_all([f]).wait()]))(futures.Future())",
    "futures.wait_all([])", "isinstance(futures.Future(), Future)", "wait(fork(lambda a: a + 1, 2))",
]  # fmt: skip


def outcome(t, call):
    names = re.findall(r"[A-Za-z_]\w*", call)
    lookup = {n: getattr(t, n) for n in set(names) - {"futures"} if hasattr(t, n)}
    lookup["futures"] = importlib.import_module(f"{t.__name__}.futures")
    lookup |= {
        n: __builtins__[n] for n in ("str", "repr", "int", "type", "len", "list", "isinstance", "iter") if n in lookup
    }
    try:
        return words(repr(eval(call, lookup)))
    except Exception as error:
        return f"{type(error).__name__}: {words(str(error))}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("call", [*CALLS, *STORAGES, *FUTURES])
def test_the_same(call):
    assert outcome(wick, call) == outcome(torch, call)


@pytest.mark.parametrize("call", FAILING_CHECKS)
def test_failing_checks(call):
    ours, theirs = outcome(wick, call), outcome(torch, call)
    assert ours.startswith("RuntimeError: Expected to") and theirs.startswith("RuntimeError")
