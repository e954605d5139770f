"""torch.utils._pytree: values of nested containers as one flat list, and back.

>>> leaves, spec = tree_flatten({"a": 1, "b": [2, 3]})
>>> tree_unflatten([10, 20, 30], spec)
{'a': 10, 'b': [20, 30]}
"""

import functools
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any, NamedTuple

from .._names import getter as _getter


class SequenceKey(NamedTuple):
    """The place of an item in a list or tuple."""

    idx: int

    def __str__(self):
        return f"[{self.idx!r}]"

    def get(self, sequence):
        """The item."""
        return sequence[self.idx]


class MappingKey(NamedTuple):
    """The place of an item in a dict."""

    key: object

    def __str__(self):
        return f"[{self.key!r}]"

    def get(self, mapping):
        """The item."""
        return mapping[self.key]


class GetAttrKey(NamedTuple):
    """The place of an item in an object."""

    name: str

    def __str__(self):
        return f".{self.name}"

    def get(self, obj):
        """The item."""
        return getattr(obj, self.name)


PyTree = Context = Any
NodeDef = namedtuple("NodeDef", "type flatten_fn unflatten_fn flatten_with_keys_fn")
_kinds = {}
SUPPORTED_NODES = _kinds
BUILTIN_TYPES = frozenset((tuple, list, dict, namedtuple, OrderedDict, defaultdict, deque))


# ---- containers ----


def register_pytree_node(
    cls, flatten_fn, unflatten_fn, *, serialized_type_name=None, to_dumpable_context=None,
    from_dumpable_context=None, flatten_with_keys_fn=None,
):  # fmt: skip
    """A class as a container: flatten_fn(x) gives (children, context), unflatten_fn(children, context) an x."""
    if cls in _kinds:
        raise ValueError(f"{cls} is already registered as pytree node. Overwriting the previous registration.")
    _kinds[cls] = NodeDef(cls, flatten_fn, unflatten_fn, flatten_with_keys_fn)


def _register_pytree_node(cls, flatten_fn, unflatten_fn, **kwargs):
    if cls not in _kinds:
        register_pytree_node(cls, flatten_fn, unflatten_fn, **kwargs)


def register_dataclass(cls, *, field_names=None, drop_field_names=None, serialized_type_name=None):
    """A dataclass as a container of its fields."""
    import dataclasses

    names = field_names or [f.name for f in dataclasses.fields(cls) if f.name not in (drop_field_names or ())]

    def flatten(obj):
        return [getattr(obj, name) for name in names], None

    def with_keys(obj):
        return [(GetAttrKey(name), getattr(obj, name)) for name in names], None

    def unflatten(values, context):
        return cls(**dict(zip(names, values, strict=True)))

    register_pytree_node(cls, flatten, unflatten, flatten_with_keys_fn=with_keys)


def register_constant(cls):
    """A class whose objects are part of the structure."""
    register_pytree_node(cls, lambda x: ([], x), lambda values, x: x, flatten_with_keys_fn=lambda x: ([], x))


def _list_flatten(x):
    return list(x), None


def _sequence_with_keys(flatten, x):
    values, context = flatten(x)
    return [(SequenceKey(i), v) for i, v in enumerate(values)], context


def _dict_flatten(x):
    return list(x.values()), list(x.keys())


def _dict_flatten_with_keys(x):
    values, keys = _dict_flatten(x)
    return [(MappingKey(k), v) for k, v in zip(keys, values, strict=True)], keys


def _dict_unflatten(values, keys):
    return dict(zip(keys, values, strict=True))


def _defaultdict_flatten(x):
    return list(x.values()), [x.default_factory, list(x.keys())]


def _namedtuple_flatten(x):
    return list(x), type(x)


def _namedtuple_with_keys(x):
    return [(GetAttrKey(name), v) for name, v in zip(x._fields, x, strict=True)], type(x)


def _deque_flatten(x):
    return list(x), x.maxlen


for _cls, _flatten, _unflatten in (
    (tuple, _list_flatten, lambda values, _: tuple(values)),
    (list, _list_flatten, lambda values, _: list(values)),
    (deque, _deque_flatten, lambda values, maxlen: deque(values, maxlen=maxlen)),
):
    register_pytree_node(
        _cls, _flatten, _unflatten, flatten_with_keys_fn=functools.partial(_sequence_with_keys, _flatten)
    )
register_pytree_node(dict, _dict_flatten, _dict_unflatten, flatten_with_keys_fn=_dict_flatten_with_keys)
register_pytree_node(
    OrderedDict, _dict_flatten, lambda values, keys: OrderedDict(zip(keys, values, strict=True)),
    flatten_with_keys_fn=_dict_flatten_with_keys,
)  # fmt: skip
register_pytree_node(
    defaultdict, _defaultdict_flatten,
    lambda values, context: defaultdict(context[0], zip(context[1], values, strict=True)),
    flatten_with_keys_fn=lambda x: (_dict_flatten_with_keys(x)[0], _defaultdict_flatten(x)[1]),
)  # fmt: skip
register_pytree_node(
    namedtuple, _namedtuple_flatten, lambda values, cls: cls(*values), flatten_with_keys_fn=_namedtuple_with_keys
)


def is_namedtuple_class(cls):
    """Whether a class is a tuple with names."""
    return isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields")


def is_namedtuple(obj):
    """Whether an object is a tuple with names."""
    return is_namedtuple_class(obj if isinstance(obj, type) else type(obj))


def _get_node_type(tree):
    kind = type(tree)
    if kind not in _kinds and is_namedtuple_class(kind):
        return namedtuple
    return kind


def _is_leaf(tree, is_leaf=None):
    return (is_leaf is not None and is_leaf(tree)) or _get_node_type(tree) not in _kinds


# ---- structure ----


class TreeSpec:
    """A structure: its containers' classes and contexts; a leaf has type None."""

    __slots__ = ("_children", "context", "num_children", "num_leaves", "num_nodes", "type")

    def __init__(self, type, context, children_specs=()):
        self.type, self.context, self._children = type, context, list(children_specs)
        self.num_children = len(self._children)
        self.num_nodes = 1 + sum(child.num_nodes for child in self._children)
        self.num_leaves = sum(child.num_leaves for child in self._children) if type is not None else 1

    def __repr__(self, indent=0):
        if self.is_leaf():
            return "*"
        indent += 2
        children = f",\n{' ' * indent}".join(child.__repr__(indent) for child in self._children)
        return f"TreeSpec({self.type.__name__}, {self.context}, [{children}])"

    def __eq__(self, other):
        if not isinstance(other, TreeSpec):
            return NotImplemented
        mine, theirs = (self.type, self.context), (other.type, other.context)
        return mine == theirs and self._children == other._children

    def __hash__(self):
        return hash((self.type, self.num_leaves, self.num_nodes))

    def is_leaf(self):
        """Whether it stands for a value."""
        return self.type is None

    def children(self):
        """The structures of the items."""
        return list(self._children)

    @property
    def children_specs(self):
        """The structures of the items."""
        return list(self._children)

    def child(self, index):
        """The structure of an item."""
        return self._children[index]

    def unflatten(self, leaves):
        """The containers again, with these values."""
        leaves = list(leaves)
        if len(leaves) != self.num_leaves:
            raise ValueError(
                f"treespec.unflatten(leaves): `leaves` has length {len(leaves)} but the spec refers to a pytree that "
                f"holds {self.num_leaves} items ({self})."
            )
        return self._take(iter(leaves))

    def _take(self, leaves):
        if self.is_leaf():
            return next(leaves)
        return _kinds[self.type].unflatten_fn([child._take(leaves) for child in self._children], self.context)

    def flatten_up_to(self, tree):
        """What stands in `tree` where this structure has its values."""
        if self.is_leaf():
            return [tree]
        kind = _get_node_type(tree)
        if kind is not self.type and not {kind, self.type} <= {dict, OrderedDict, defaultdict}:
            raise ValueError(f"Node type mismatch; expected {self.type!r}, but got {kind!r}.")
        values, _ = _kinds[kind].flatten_fn(tree)
        if len(values) != self.num_children:
            raise ValueError(f"Node arity mismatch; expected {self.num_children}, but got {len(values)}.")
        return [
            leaf for child, value in zip(self._children, values, strict=True) for leaf in child.flatten_up_to(value)
        ]


class LeafSpec(TreeSpec):
    """The structure of a value."""

    __slots__ = ()

    def __init__(self):
        super().__init__(None, None)


def treespec_leaf():
    """The structure of a value."""
    return LeafSpec()


def _flatten(tree, leaves, is_leaf):
    if _is_leaf(tree, is_leaf):
        leaves.append(tree)
        return LeafSpec()
    kind = _get_node_type(tree)
    values, context = _kinds[kind].flatten_fn(tree)
    return TreeSpec(kind, context, [_flatten(value, leaves, is_leaf) for value in values])


def tree_flatten(tree, is_leaf=None):
    """(values, TreeSpec)"""
    leaves = []
    spec = _flatten(tree, leaves, is_leaf)
    return leaves, spec


def tree_unflatten(leaves, treespec):
    """The containers again, with these values."""
    if not isinstance(treespec, TreeSpec):
        raise TypeError(
            f"tree_unflatten(leaves, treespec): Expected `treespec` to be instance of TreeSpec but got item of type "
            f"{type(treespec)}."
        )
    return treespec.unflatten(leaves)


def tree_iter(tree, is_leaf=None):
    """The values, one by one."""
    yield from tree_flatten(tree, is_leaf)[0]


def tree_leaves(tree, is_leaf=None):
    """The values."""
    return tree_flatten(tree, is_leaf)[0]


def tree_structure(tree, is_leaf=None):
    """The TreeSpec."""
    return tree_flatten(tree, is_leaf)[1]


def tree_is_leaf(tree, is_leaf=None):
    """Whether it is a value."""
    return _is_leaf(tree, is_leaf)


# ---- mapping ----


def tree_map(func, tree, *rests, is_leaf=None):
    """The containers with func(value, ...) for each value."""
    leaves, spec = tree_flatten(tree, is_leaf)
    columns = [leaves, *(spec.flatten_up_to(rest) for rest in rests)]
    return spec.unflatten(map(func, *columns))


def tree_map_(func, tree, *rests, is_leaf=None):
    """Calls func(value, ...) for each value; gives the tree as it was."""
    leaves, spec = tree_flatten(tree, is_leaf)
    deque(map(func, leaves, *(spec.flatten_up_to(rest) for rest in rests)), maxlen=0)
    return tree


def _chooser(kinds):
    return kinds if callable(kinds) and not isinstance(kinds, (type, tuple)) else lambda x: isinstance(x, kinds)


def map_only(type_or_types_or_pred, /):
    """A decorator: the function for values of these classes, others as they are."""
    chosen = _chooser(type_or_types_or_pred)

    def wrapper(func):
        @functools.wraps(func)
        def wrapped(x):
            return func(x) if chosen(x) else x

        return wrapped

    return wrapper


def tree_map_only(kinds, func, tree, is_leaf=None):
    """tree_map for values of these classes."""
    return tree_map(map_only(kinds)(func), tree, is_leaf=is_leaf)


def tree_map_only_(kinds, func, tree, is_leaf=None):
    """tree_map_ for values of these classes."""
    return tree_map_(map_only(kinds)(func), tree, is_leaf=is_leaf)


def tree_all(pred, tree, is_leaf=None):
    """Whether it holds of all values."""
    return all(map(pred, tree_iter(tree, is_leaf)))


def tree_any(pred, tree, is_leaf=None):
    """Whether it holds of a value."""
    return any(map(pred, tree_iter(tree, is_leaf)))


def tree_all_only(kinds, pred, tree, is_leaf=None):
    """Whether it holds of all values of these classes."""
    chosen = _chooser(kinds)
    return all(pred(x) for x in tree_iter(tree, is_leaf) if chosen(x))


def tree_any_only(kinds, pred, tree, is_leaf=None):
    """Whether it holds of a value of these classes."""
    chosen = _chooser(kinds)
    return any(pred(x) for x in tree_iter(tree, is_leaf) if chosen(x))


# ---- places ----


def keystr(kp):
    """ "['a'][0]" for a path of keys."""
    return "".join(map(str, kp))


def key_get(obj, kp):
    """What stands at a path of keys."""
    for key in kp:
        obj = key.get(obj)
    return obj


def _with_path(path, tree, is_leaf):
    kind = _get_node_type(tree)
    if _is_leaf(tree, is_leaf):
        yield path, tree
        return
    if _kinds[kind].flatten_with_keys_fn is None:
        raise ValueError(f"Did not find a flatten_with_keys_fn for type: {kind}.")
    for key, value in _kinds[kind].flatten_with_keys_fn(tree)[0]:
        yield from _with_path((*path, key), value, is_leaf)


def tree_flatten_with_path(tree, is_leaf=None):
    """([(path, value), ...], TreeSpec)"""
    return list(_with_path((), tree, is_leaf)), tree_structure(tree, is_leaf)


def tree_leaves_with_path(tree, is_leaf=None):
    """[(path, value), ...]"""
    return list(_with_path((), tree, is_leaf))


def tree_map_with_path(func, tree, *rests, is_leaf=None):
    """tree_map with func(path, value, ...)."""
    places, spec = tree_flatten_with_path(tree, is_leaf)
    columns = [spec.flatten_up_to(rest) for rest in rests]
    return spec.unflatten(func(path, value, *others) for (path, value), *others in zip(places, *columns, strict=True))


def _broadcast_to_and_flatten(tree, treespec, is_leaf=None):
    """One value of `tree` for each of the structure's; None where they do not fit."""
    if _is_leaf(tree, is_leaf):
        return [tree] * treespec.num_leaves
    kind = _get_node_type(tree)
    if treespec.is_leaf() or kind is not treespec.type:
        return None
    values, context = _kinds[kind].flatten_fn(tree)
    if len(values) != treespec.num_children or context != treespec.context:
        return None
    result = []
    for value, child in zip(values, treespec._children, strict=True):
        part = _broadcast_to_and_flatten(value, child, is_leaf)
        if part is None:
            return None
        result += part
    return result


class _Star:
    def __repr__(self):
        return "*"


def treespec_pprint(treespec):
    """The structure as text, with stars for leaves."""
    return repr(tree_unflatten([_Star()] * treespec.num_leaves, treespec))


__getattr__ = _getter(__name__)
