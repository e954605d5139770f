"""Names that programs import and ask before they start: they are there, answer as PyTorch's CPU build does, and what
cannot work says so when it is called."""

import contextlib

import pytest

import wick

MODULES = """
    accelerator amp ao.nn.quantized ao.quantization backends.cpu backends.cuda backends.cudnn backends.mkl
    backends.mkldnn backends.mps backends.openmp backends.opt_einsum cpu.amp cuda.amp cuda.nvtx distributed
    distributed.device_mesh distributions.relaxed_bernoulli distributions.relaxed_categorical
    distributed.fsdp distributed.tensor distributed.tensor.placement_types functional fx.proxy hub
    jit jit.annotations library mps multiprocessing nn.attention.bias nn.attention.flex_attention nn.modules.utils
    nn.parallel nn.parallel._functions nn.parallel.scatter_gather nn.quantized onnx onnx.symbolic_helper onnx.symbolic_opset11 quantization
    quantization.quantize_fx testing types utils._pytree utils._python_dispatch utils.collect_env utils.cpp_extension utils.flop_counter
    utils.data._utils.collate
    utils.data._utils.signal_handling utils.data.distributed utils.mobile_optimizer utils.model_zoo version xpu _C _custom_ops _dynamo.utils _jit_internal
    _subclasses _utils
""".split()


@pytest.mark.parametrize("name", MODULES)
def test_module_is_there(name):
    import importlib

    assert importlib.import_module(f"wick.{name}") is not None


def test_questions_about_devices():
    assert not wick.cuda.is_available() and wick.cuda.device_count() == 0
    assert not wick.xpu.is_available() and not wick.mps.is_available() and not wick.backends.mps.is_available()
    assert wick.accelerator.current_accelerator() is None
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        wick.cuda.current_device()
    with pytest.raises(RuntimeError, match="dummy base class"):
        wick.cuda.Stream()
    with wick.cuda.stream(None):
        pass
    assert wick.cuda.memory_allocated() == 0


def test_distributed_is_one_process():
    assert not wick.distributed.is_available() and not wick.distributed.is_initialized()
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        wick.distributed.get_rank()
    with pytest.raises(NotImplementedError, match="init_process_group"):
        wick.distributed.init_process_group("gloo")
    with pytest.raises(NotImplementedError, match="DistributedDataParallel"):
        wick.nn.parallel.DistributedDataParallel(wick.nn.Linear(2, 2))


def test_what_cannot_work_says_so():
    for call in (
        lambda: wick.onnx.export(None, None, "x"),
        lambda: wick.utils.cpp_extension.load("x", []),
        lambda: wick._subclasses.FakeTensor(),
    ):
        with pytest.raises(NotImplementedError, match="not available"):
            call()


def test_script_and_trace_give_what_they_get():
    @wick.jit.script
    def f(x):
        return x + 1

    module = wick.nn.Linear(2, 2)
    assert f(wick.ones(1)).item() == 2
    for same in (wick.jit.script(module), wick.jit.trace(module, wick.ones(2))):
        assert isinstance(same, wick.nn.Linear) and same.weight is module.weight
    assert not wick.jit.is_scripting() and not wick.jit.is_tracing()

    @wick.jit.ignore
    def g():
        return 3

    @wick.jit.ignore(drop=True)
    def h():
        return 4

    assert g() == 3 and h() == 4
    assert wick.jit.wait(wick.jit.fork(f, wick.ones(1))).item() == 2
    assert wick.jit.isinstance([1], list[int])
    with pytest.raises(RuntimeError):
        wick.jit.trace(module, wick.ones(3))


def test_tensor_types_by_name():
    assert wick.FloatTensor(2, 3).shape == (2, 3)
    assert wick.LongTensor([1, 2]).tolist() == [1, 2] and wick.LongTensor([1]).dtype == wick.int64
    assert isinstance(wick.ones(1), wick.FloatTensor) and not isinstance(wick.ones(1), wick.LongTensor)
    with pytest.raises(TypeError, match="not available"):
        wick.cuda.FloatTensor(2)


def test_default_device():
    assert wick.get_default_device() == wick.device("cpu")
    with wick.device("meta"):
        assert wick.ones(2).is_meta and wick.tensor([1.0]).is_meta and wick.nn.Linear(2, 3).weight.is_meta
        assert wick.ones(2, device="cpu").device.type == "cpu"
        assert wick.ones_like(wick.ones(1, device="cpu")).device.type == "cpu"
        with wick.device("cpu"):
            assert not wick.zeros(2).is_meta
        assert wick.arange(3).is_meta
    assert not wick.ones(2).is_meta

    @wick.device("meta")
    def make():
        return wick.ones(3)

    assert make().is_meta
    wick.set_default_device("meta")
    try:
        assert wick.empty(2).is_meta
    finally:
        wick.set_default_device(None)


def test_default_device_is_a_guard():
    compiled = wick.compile(lambda x: x + wick.ones(2))
    assert compiled(wick.ones(2)).tolist() == [2, 2]
    with wick.device("meta"):
        assert compiled(wick.ones(2, device="meta")).is_meta
    assert compiled(wick.ones(2)).tolist() == [2, 2]


def test_random_goes_on_behind_a_fork():
    wick.manual_seed(1)
    state = wick.random.get_rng_state()
    with wick.random.fork_rng():
        wick.rand(3)
    assert wick.equal(wick.random.get_rng_state(), state)


def test_older_names_of_initialisers():
    with pytest.warns(FutureWarning, match="`nn.init.constant` is now deprecated in favor of `nn.init.constant_`."):
        assert wick.nn.init.constant(wick.empty(2), 3.0).tolist() == [3, 3]


def test_data_parallel_runs_the_module():
    module = wick.nn.DataParallel(wick.nn.Linear(2, 3))
    assert module(wick.ones(4, 2)).shape == (4, 3)
    assert list(module.state_dict()) == ["module.weight", "module.bias"]


def test_settings_are_read_back():
    assert not wick.backends.cudnn.benchmark
    with wick.backends.cudnn.flags(enabled=True, benchmark=True):
        assert wick.backends.cudnn.benchmark
    assert not wick.backends.cudnn.benchmark


def test_pytree_nodes_by_their_fields():
    """As programs take a container apart themselves."""
    tree = wick.utils._pytree
    node = tree.SUPPORTED_NODES[tree._get_node_type({"a": 1})]
    assert node.type is dict and node.flatten_fn({"a": 1}) == ([1], ["a"]) and node.unflatten_fn([2], ["a"]) == {"a": 2}
    spec = tree.TreeSpec(list, None, [tree.LeafSpec(), tree.LeafSpec()])
    assert spec == tree.tree_structure([3, 4]) and tree.tree_unflatten([1, 2], spec) == [1, 2]
    assert tree.PyTree is not None


def test_pytree():
    tree = wick.utils._pytree
    leaves, spec = tree.tree_flatten({"a": 1, "b": [2, (3, None)]})
    assert leaves == [1, 2, 3, None] and tree.tree_unflatten(leaves, spec) == {"a": 1, "b": [2, (3, None)]}
    assert tree.tree_map(lambda x, y: x + y, [1, 2], [10, 20]) == [11, 22]
    assert [tree.keystr(path) for path, _ in tree.tree_leaves_with_path({"a": [1, 2]})] == ["['a'][0]", "['a'][1]"]
    with pytest.raises(ValueError):
        spec.unflatten([1])


def test_distributed_sampler():
    sampler = wick.utils.data.DistributedSampler(range(10), num_replicas=3, rank=1, shuffle=False)
    assert list(sampler) == [1, 4, 7, 0] and len(sampler) == 4
    shuffled = wick.utils.data.DistributedSampler(range(10), num_replicas=2, rank=0, seed=3)
    assert len(set(shuffled)) == 5 and list(shuffled) == list(shuffled)


def test_assert_close():
    wick.testing.assert_close(wick.ones(2), wick.ones(2) + 1e-7)
    with pytest.raises(AssertionError, match="Mismatched elements: 1 / 2"):
        wick.testing.assert_close(wick.tensor([1.0, 2.0]), wick.tensor([1.0, 3.0]))
    with pytest.raises(AssertionError, match="'dtype'"):
        wick.testing.assert_close(wick.ones(2), wick.ones(2, dtype=wick.float64))


def test_flex_attention_is_attention():
    wick.manual_seed(0)
    q, k, v = (wick.randn(2, 3, 8, 4) for _ in range(3))
    flex = wick.nn.attention.flex_attention
    plain = wick.nn.functional.scaled_dot_product_attention(q, k, v)
    wick.testing.assert_close(flex.flex_attention(q, k, v), plain)
    mask = flex.create_block_mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, None, None, 8, 8, device="cpu")
    causal = wick.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    wick.testing.assert_close(flex.flex_attention(q, k, v, block_mask=mask), causal)


def test_fork_free_loading_of_a_local_hub(tmp_path):
    (tmp_path / "hubconf.py").write_text("def model(n):\n    return n + 1\n")
    assert wick.hub.load(str(tmp_path), "model", 2, source="local") == 3
    with pytest.raises(RuntimeError, match="Cannot find callable"):
        wick.hub.load(str(tmp_path), "other", source="local")


def test_shares_of_a_batch():
    from wick.nn.parallel._functions import Broadcast, Gather, ReduceAddCoalesced, Scatter

    x = wick.arange(6.0).requires_grad_()
    shares = Scatter.apply([0, 1], None, 0, x)
    assert [s.tolist() for s in shares] == [[0, 1, 2], [3, 4, 5]]
    assert [s.tolist() for s in Scatter.apply([0, 1], [4, 2], 0, x)] == [[0, 1, 2, 3], [4, 5]]
    Gather.apply(None, 0, *shares).square().sum().backward()
    assert x.grad.tolist() == (2 * x).tolist()
    assert len(Broadcast.apply([0, 1], x)) == 2
    assert ReduceAddCoalesced.apply(None, 1, *shares)[0].tolist() == [3, 5, 7]


def test_nll_loss_by_its_name_of_old():
    with pytest.warns(FutureWarning, match="`NLLLoss2d` has been deprecated"):
        loss = wick.nn.NLLLoss2d()
    log, target = wick.randn(2, 3, 4, 4).log_softmax(1), wick.ones(2, 4, 4, dtype=wick.long)
    assert loss(log, target) == wick.nn.NLLLoss()(log, target)


def test_deterministic_algorithms():
    assert not wick.are_deterministic_algorithms_enabled() and wick.get_deterministic_debug_mode() == 0
    try:
        wick.use_deterministic_algorithms(True, warn_only=True)
        assert wick.are_deterministic_algorithms_enabled() and wick.is_deterministic_algorithms_warn_only_enabled()
        wick.set_deterministic_debug_mode("error")
        assert wick.get_deterministic_debug_mode() == 2 and not wick.is_deterministic_algorithms_warn_only_enabled()
        for mode, kind in ((3, RuntimeError), ("x", RuntimeError), (1.5, TypeError)):
            with pytest.raises(kind, match="debug_mode"):
                wick.set_deterministic_debug_mode(mode)
    finally:
        wick.use_deterministic_algorithms(False)
    assert wick.utils.deterministic.fill_uninitialized_memory


def test_names_that_libraries_import():
    from wick._dynamo.eval_frame import OptimizedModule

    module = wick.nn.Linear(2, 2)
    assert isinstance(wick.compile(module), OptimizedModule) and not isinstance(module, OptimizedModule)
    assert wick._dynamo.mark_static_address(wick.ones(2)) is None
    assert wick.nn.modules.module._EXTRA_STATE_KEY_SUFFIX == "_extra_state"
    assert wick.utils.data._utils.ExceptionWrapper is wick._utils.ExceptionWrapper
    assert wick.utils.data._utils.worker.ManagerWatchdog().is_alive() and not wick.utils.data._utils.IS_WINDOWS
    assert callable(wick.svd_lowrank) and callable(wick.pca_lowrank)
    assert wick._sample_dirichlet(wick.ones(3, 4)).sum(-1).allclose(wick.ones(3))
    with pytest.raises(NotImplementedError, match="torch.distributions.Wishart is not available"):
        wick.distributions.Wishart(2, wick.eye(2))


def test_the_tracer_of_a_graph():
    class Own(wick.fx.Tracer):
        pass

    graph = Own().trace(wick.nn.Linear(2, 2))
    assert graph._tracer_cls is Own and wick.fx.Graph()._tracer_cls is None
    assert wick.fx.symbolic_trace(wick.nn.ReLU()).graph._tracer_cls is wick.fx.Tracer


@pytest.mark.parametrize("keyword", ["indices", "sections", "tensor_indices_or_sections"])
def test_tensor_split_by_keywords(keyword):
    given = {"indices": (1, 3), "sections": 3, "tensor_indices_or_sections": wick.tensor([1, 3])}.get(keyword, [1, 3])
    parts = wick.arange(6).tensor_split(**{keyword: given})
    assert [len(p) for p in parts] == ([2, 2, 2] if keyword == "sections" else [1, 2, 3])
    with pytest.raises(TypeError):
        wick.arange(6).tensor_split()


def test_what_libraries_ask_a_tensor_and_its_class():
    from wick._dynamo import OptimizedModule
    from wick._subclasses.fake_tensor import is_fake
    from wick.fx.experimental.proxy_tensor import get_proxy_mode
    from wick.utils.checkpoint import get_device_states, set_device_states

    assert not is_fake(wick.ones(1)) and get_proxy_mode() is None
    assert isinstance(wick.Tensor, wick._C._TensorMeta) and isinstance(wick.nn.Parameter, wick._C._TensorMeta)
    assert not isinstance(int, wick._C._TensorMeta) and not isinstance(wick.ones(1), wick._C._TensorMeta)
    assert isinstance(wick.compile(wick.nn.Linear(2, 2)), OptimizedModule)
    ctx = wick.compile(wick.nn.Linear(2, 2), fullgraph=True).dynamo_ctx
    assert ctx(lambda x: x + 1)(wick.ones(2)).tolist() == [2.0, 2.0]
    assert get_device_states(wick.ones(1)) == ([], []) and set_device_states([], []) is None


def test_classes_of_a_loaders_iterators():
    from wick.utils.data import dataloader

    iterator = iter(wick.utils.data.DataLoader([1, 2]))
    assert isinstance(iterator, dataloader._SingleProcessDataLoaderIter)
    assert isinstance(iterator, dataloader._BaseDataLoaderIter)
    assert not isinstance(iterator, dataloader._MultiProcessingDataLoaderIter)
    with iter_of_workers() as iterator:
        assert isinstance(iterator, dataloader._MultiProcessingDataLoaderIter) and list(iterator)[0].tolist() == [1]


@contextlib.contextmanager
def iter_of_workers():
    iterator = iter(wick.utils.data.DataLoader([1, 2], num_workers=1))
    try:
        yield iterator
    finally:
        iterator._shutdown_workers()


def test_where_a_module_was_asked_to_go():
    assert wick._C._nn._parse_to("cpu", wick.float64, True) == (wick.device("cpu"), wick.float64, True, None)
    assert wick._C._nn._parse_to(wick.ones(1, dtype=wick.int8))[:2] == (wick.device("cpu"), wick.int8)


def test_a_dense_tensor_is_dense():
    x = wick.ones(2)
    assert x.to_dense() is x and x.to_dense(wick.float64).dtype == wick.float64


def test_names_that_kornia_asks_for():
    assert not isinstance(1.0, wick.SymFloat) and not isinstance(True, wick.SymBool)
    assert wick.complex32.is_complex and wick.ones(1).dtype != wick.complex32 and wick.chalf is wick.complex32
    assert not wick._C._are_functorch_transforms_active() and "_are_functorch_transforms_active" in vars(wick._C)
    wick._assert_async(wick.tensor(True))
    with pytest.raises(RuntimeError, match="Expected Tensor with single nonzero value, but got zero"):
        wick._assert_async(wick.tensor(0))
    with pytest.raises(RuntimeError, match="negative"):
        wick._assert_async(wick.tensor(False), "negative")


def test_what_logs_a_use_breaks_no_graph():
    """As torchvision's functions do it."""

    def f(x):
        wick._C._log_api_usage_once("f")
        return x + 1

    f(wick.ones(1))
    assert wick.compile(f, fullgraph=True)(wick.ones(1)).item() == 2


def test_names_of_flex_attention_that_transformers_imports():
    from wick.nn.attention.flex_attention import (
        _DEFAULT_SPARSE_BLOCK_SIZE,
        BlockMask,
        create_block_mask,
        flex_attention,
    )

    assert _DEFAULT_SPARSE_BLOCK_SIZE == 128 and callable(create_block_mask) and callable(flex_attention) and BlockMask


def test_no_submodule_takes_a_functions_name():
    """Importing a submodule binds it in its package, over what was there: no name that is looked up late is a file's, too."""
    import importlib.util

    late = {name: file for name, file in wick._LAZY.items() if importlib.util.find_spec(f"wick.{name}")}
    assert late == {}


def test_config_says_what_it_was_built_with():
    text = wick.__config__.show()
    assert text.startswith("PyTorch built with:\n") and "USE_MKL=OFF" in text and "USE_CUDA=OFF" in text
    assert f"at::get_num_threads() : {wick.get_num_threads()}\n" in wick.__config__.parallel_info()


def test_types_for_annotations():
    assert wick.futures.Future[wick.Tensor].__origin__ is wick.futures.Future
    assert wick.device in wick.serialization.MAP_LOCATION.__args__


def test_tensors_by_device_and_dtype():
    from wick.utils._foreach_utils import _group_tensors_by_device_and_dtype as groups

    a, b, c = wick.ones(2), wick.ones(1).double(), wick.ones(3)
    found = groups([[a, b, c], [None, a, None], []], with_indices=True)
    cpu = wick.device("cpu")
    assert list(found) == [(cpu, wick.float32), (cpu, wick.float64)]
    lists, indices = found[cpu, wick.float32]
    assert indices == [0, 2] and lists[0][0] is a and lists[0][1] is c and lists[1:] == [[None, None], []]
    assert groups([[a]])[cpu, wick.float32][1] == []
