"""Reads the pickles of saved files without running anything from them.

A pickle is a program for a stack machine. This is that machine with the opcodes that saved files use (protocols 2 to
5), on plain data, except that a global is looked up in a fixed table, and only the table's functions can be called. The
work is linear in the length of the input; sizes are checked before anything is made of them.
"""

import struct
from collections import Counter, OrderedDict
from pickle import UnpicklingError

_MARK = object()
_WORK = 64  # what calls and keys may look at, for each byte of the input
_DEPTH = 100  # of tuples in tuples that are keys: hashing them recurs in C
_SIZED = (str, bytes, bytearray, tuple, list, dict, set, frozenset)


class Allowed:
    """A global of the table: what calls, NEWOBJ and BUILD do with it. A missing one is refused."""

    def __init__(self, value, call=None, new=None):
        self.value, self.call, self.new = value, call, new


def _encode(text, encoding="latin1"):
    """_codecs.encode, which protocol 2 has for bytes."""
    if encoding != "latin1" or not isinstance(text, str):
        raise UnpicklingError("_codecs.encode is only for bytes, in latin1")
    return text.encode(encoding)


def _bytearray(*args):
    if not args:
        return bytearray()
    if isinstance(args[0], (bytes, bytearray)):
        return bytearray(args[0])
    if len(args) == 2 and isinstance(args[0], str):
        return bytearray(_encode(*args))
    raise UnpicklingError("bytearray is only for bytes")


def _complex(real, imaginary=0.0):
    return complex(real, imaginary)


def _plain(cls):
    return Allowed(cls, call=cls, new=lambda c, *args: c(*args))


# Besides these, `find_global` of the caller has the tensor functions and the types that the user has allowed.
PLAIN_GLOBALS = {
    ("collections", "OrderedDict"): _plain(OrderedDict),
    ("collections", "Counter"): _plain(Counter),
    ("_codecs", "encode"): Allowed(_encode, call=_encode),
    ("builtins", "set"): Allowed(set, call=set),
    ("builtins", "frozenset"): Allowed(frozenset, call=frozenset),
    ("builtins", "bytearray"): Allowed(bytearray, call=_bytearray),
    ("builtins", "complex"): Allowed(complex, call=_complex),
}
# What Python 2 called builtins; protocol 2 writes it.
PLAIN_GLOBALS |= {("__builtin__", n): v for (m, n), v in list(PLAIN_GLOBALS.items()) if m == "builtins"}


class Unpickler:
    """Unpickles bytes.

    find_global(module, name) -> Allowed, or raises UnpicklingError; persistent_load(id) -> object.
    """

    def __init__(self, data, find_global, persistent_load):
        self._data = bytes(data)
        self._at = 0
        self._left = _WORK * (len(self._data) + 64)
        self._find_global = find_global
        self._persistent_load = persistent_load
        self._stack, self._memo = [], {}

    def load(self):
        """The one object that was pickled."""
        try:
            while True:
                opcode = self._take(1)[0]
                if opcode == 0x2E:  # STOP
                    if len(self._stack) != 1:
                        raise UnpicklingError("objects are left over at the end")
                    return self._values([self._checked(self._stack[0])])[0]
                handler = _HANDLERS.get(opcode)
                if handler is None:
                    raise UnpicklingError(f"Unsupported operand {opcode}")
                handler(self)
        except (IndexError, struct.error, UnicodeDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, KeyError) and error.args:
                error = f"nothing was stored under {error}"
            raise UnpicklingError(f"the pickle is damaged at byte {self._at}: {error}") from None

    # ---- input ----

    def _take(self, count):
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise UnpicklingError("pickle data was truncated")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _number(self, form):
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _line(self):
        end = self._data.find(b"\n", self._at)
        if end < 0:
            raise UnpicklingError("pickle data was truncated")
        line = self._take(end - self._at)
        self._at += 1
        return line.decode("utf-8")

    # ---- stack ----

    def _push(self, value):
        self._stack.append(value)

    def _pop(self):
        value = self._stack.pop()
        return self._checked(value)

    @property
    def end(self):
        """How many bytes were read."""
        return self._at

    @staticmethod
    def _checked(value):
        if value is _MARK:
            raise UnpicklingError("a mark stands where an object should")
        return value

    def _pop_mark(self):
        """The objects above the last mark."""
        at = len(self._stack) - 1
        while at >= 0 and self._stack[at] is not _MARK:
            at -= 1
        if at < 0:
            raise UnpicklingError("a mark is missing")
        items = self._stack[at + 1 :]
        del self._stack[at:]
        return items

    def _top(self, *kinds):
        top = self._checked(self._stack[-1])
        if not isinstance(top, kinds):
            raise UnpicklingError(f"cannot add items to a {type(top).__name__}")
        return top

    def _values(self, items):
        """Globals stand on the stack as Allowed; as data they are their values."""
        return [item.value if isinstance(item, Allowed) else item for item in items]

    # ---- limits: what the memo names is stored once and can be used often ----

    def _charge(self, values):
        """Counts the work of a function that goes over these values."""
        self._left -= 1 + sum(len(value) for value in values if isinstance(value, _SIZED))
        if self._left < 0:
            raise UnpicklingError("the pickle asks for more work than its size explains")

    def _check_keys(self, keys):
        """Tuples are hashed whole each time, and recursively."""
        nested = [(key, 1) for key in keys if isinstance(key, tuple)]
        while nested:
            key, depth = nested.pop()
            if depth > _DEPTH:
                raise UnpicklingError("a key is nested too deeply")
            self._charge((key,))
            nested += [(item, depth + 1) for item in key if isinstance(item, tuple)]

    # ---- building ----

    def _set_items(self, items):
        target = self._top(dict)
        items = self._values(items)
        if len(items) % 2:
            raise UnpicklingError("a key without a value")
        self._check_keys(items[::2])
        for i in range(0, len(items), 2):
            target[items[i]] = items[i + 1]

    def _append_items(self, items):
        self._top(list).extend(self._values(items))

    def _add_items(self, items):
        self._check_keys(items)
        self._top(set).update(self._values(items))

    def _frozen_set(self, items):
        self._check_keys(items)
        self._push(frozenset(self._values(items)))

    def _global(self, module, name):
        if not isinstance(module, str) or not isinstance(name, str):
            raise UnpicklingError("a global's name is not text")
        allowed = PLAIN_GLOBALS.get((module, name))
        self._push(self._find_global(module, name) if allowed is None else allowed)

    def _call(self, kind):
        arguments, function = self._pop(), self._pop()
        run = getattr(function, kind, None) if isinstance(function, Allowed) else None
        if run is None or not isinstance(arguments, tuple):
            raise UnpicklingError("Trying to call an object that may not be called")
        arguments = self._values(arguments)
        self._charge(arguments)
        for argument in arguments:
            if isinstance(argument, (tuple, list)):
                self._check_keys(argument)
        self._push(run(function.value, *arguments) if kind == "new" else run(*arguments))

    def _build(self):
        state = self._pop()
        target = self._checked(self._stack[-1])
        self._charge((state, *(state if isinstance(state, tuple) else ())))
        self._find_build(target)(target, state)

    @staticmethod
    def _find_build(target):
        if type(target) in (OrderedDict, Counter):
            return lambda target, state: target.__dict__.update(state)
        for kind, build in _BUILDERS:
            if isinstance(target, kind):
                return build
        raise UnpicklingError(
            "Can only build Tensor, Parameter, OrderedDict or types allowlisted via `add_safe_globals`, "
            f"but got {type(target)}"
        )

    def _persistent(self):
        key = self._pop()
        if not isinstance(key, tuple) or len(key) > 8:
            raise UnpicklingError("a persistent id is not a short tuple")
        self._push(self._persistent_load(tuple(self._values(key))))

    def _tuple(self, count):
        if count == 0:
            return self._push(())
        items = self._stack[-count:]
        if len(items) != count or any(item is _MARK for item in items):
            raise UnpicklingError("a tuple's items are missing")
        del self._stack[-count:]
        self._push(tuple(self._values(items)))

    def _text(self, size):
        self._push(self._take(size).decode("utf-8", "surrogatepass"))

    def _long(self, size):
        self._push(int.from_bytes(self._take(size), "little", signed=True))

    def _put(self, key):
        self._memo[key] = self._checked(self._stack[-1])


_BUILDERS = []  # (type, function(target, state)): filled by allow_building


def allow_building(kind, build):
    """Lets BUILD set the state of instances of a type."""
    _BUILDERS[:] = [(k, b) for k, b in _BUILDERS if k is not kind] + [(kind, build)]


def forbid_building(kind):
    """Takes allow_building back."""
    _BUILDERS[:] = [(k, b) for k, b in _BUILDERS if k is not kind]


# One line an opcode, as pickletools names them.
_HANDLERS = {
    ord(code): handler
    for code, handler in {
        "\x80": lambda u: u._take(1),  # PROTO
        "\x95": lambda u: u._take(8),  # FRAME
        "(": lambda u: u._push(_MARK),  # MARK
        "0": lambda u: u._stack.pop(),  # POP
        "1": lambda u: u._pop_mark(),  # POP_MARK
        "2": lambda u: u._push(u._checked(u._stack[-1])),  # DUP
        "N": lambda u: u._push(None),  # NONE
        "\x88": lambda u: u._push(True),  # NEWTRUE
        "\x89": lambda u: u._push(False),  # NEWFALSE
        "J": lambda u: u._push(u._number("<i")),  # BININT
        "K": lambda u: u._push(u._take(1)[0]),  # BININT1
        "M": lambda u: u._push(u._number("<H")),  # BININT2
        "\x8a": lambda u: u._long(u._take(1)[0]),  # LONG1
        "\x8b": lambda u: u._long(u._number("<i")),  # LONG4
        "G": lambda u: u._push(u._number(">d")),  # BINFLOAT
        "X": lambda u: u._text(u._number("<I")),  # BINUNICODE
        "\x8c": lambda u: u._text(u._take(1)[0]),  # SHORT_BINUNICODE
        "\x8d": lambda u: u._text(u._number("<Q")),  # BINUNICODE8
        "U": lambda u: u._push(u._take(u._take(1)[0]).decode("ascii")),  # SHORT_BINSTRING
        "B": lambda u: u._push(u._take(u._number("<I"))),  # BINBYTES
        "C": lambda u: u._push(u._take(u._take(1)[0])),  # SHORT_BINBYTES
        "\x8e": lambda u: u._push(u._take(u._number("<Q"))),  # BINBYTES8
        "\x96": lambda u: u._push(bytearray(u._take(u._number("<Q")))),  # BYTEARRAY8
        ")": lambda u: u._push(()),  # EMPTY_TUPLE
        "\x85": lambda u: u._tuple(1),  # TUPLE1
        "\x86": lambda u: u._tuple(2),  # TUPLE2
        "\x87": lambda u: u._tuple(3),  # TUPLE3
        "t": lambda u: u._push(tuple(u._values(u._pop_mark()))),  # TUPLE
        "]": lambda u: u._push([]),  # EMPTY_LIST
        "l": lambda u: u._push(u._values(u._pop_mark())),  # LIST
        "a": lambda u: u._append_items([u._pop()]),  # APPEND
        "e": lambda u: u._append_items(u._pop_mark()),  # APPENDS
        "}": lambda u: u._push({}),  # EMPTY_DICT
        "s": lambda u: u._set_items([u._pop(), u._pop()][::-1]),  # SETITEM
        "u": lambda u: u._set_items(u._pop_mark()),  # SETITEMS
        "\x8f": lambda u: u._push(set()),  # EMPTY_SET
        "\x90": lambda u: u._add_items(u._pop_mark()),  # ADDITEMS
        "\x91": lambda u: u._frozen_set(u._pop_mark()),  # FROZENSET
        "q": lambda u: u._put(u._take(1)[0]),  # BINPUT
        "r": lambda u: u._put(u._number("<I")),  # LONG_BINPUT
        "\x94": lambda u: u._put(len(u._memo)),  # MEMOIZE
        "h": lambda u: u._push(u._memo[u._take(1)[0]]),  # BINGET
        "j": lambda u: u._push(u._memo[u._number("<I")]),  # LONG_BINGET
        "c": lambda u: u._global(u._line(), u._line()),  # GLOBAL
        "\x93": lambda u: u._global(*[u._pop(), u._pop()][::-1]),  # STACK_GLOBAL
        "R": lambda u: u._call("call"),  # REDUCE
        "\x81": lambda u: u._call("new"),  # NEWOBJ
        "b": lambda u: u._build(),  # BUILD
        "Q": lambda u: u._persistent(),  # BINPERSID
    }.items()
}
