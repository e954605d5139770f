"""Reads .ops files: rows of the operator table and the classes that they are like.

A file holds comments (`# ...`), classes and rows. A row starts at the left margin with its schema; its fields stand below,
indented by two, one a line, `field value`; a line that is indented further continues the one above it.

    class unary_float
      is       pointwise
      shape    pointwise_float

    # sin(pi x) / (pi x), and 1 at 0
    sinc(Tensor self) -> Tensor
      like     unary_float
      lower    sinc
      vjp      sinc
      keeps    self: self
      samples  T(3, 4)

FIELDS below says what each field means. `like` takes over the fields of classes, later ones before earlier ones; `is` adds
flags to theirs, every other field replaces theirs. A line `alias multiply = mul` gives every
overload of a row another name, under which it is a composite of the first; `copy view_copy = view` does so too, and gives
copies of the views.

A mistake is reported as `file:line: what is wrong (hint)`.
"""

import difflib
import re
from dataclasses import dataclass, field, replace

from . import schema
from .sampling_words import SAMPLE_WORDS

HOW = ("lower", "view", "routine", "kernel", "compose")

FIELDS = {
    "like": "classes whose fields hold here too",
    "is": "flags, one or more of FLAGS",
    "shape": "shape rule, wk__meta_NAME: dtypes, sizes and strides of the results",
    "lower": "computed by a loop-IR body, wk__lower_NAME",
    "view": "new geometry over the same storage, wk__view_NAME",
    "routine": "results filled by calling operators below the layers, on any device, wk__routine_NAME",
    "kernel": "code that reads and writes a device's memory: on the CPU wk__cpu_NAME, in src/cpu/kernels/",
    "compose": "calls of other operators, wk__compose_NAME",
    "pairs": "a lowered row over complex tensors: a body on pairs of real and imaginary parts, wk__pairs_NAME",
    "of_complex": "of complex tensors: results filled by calling operators below the layers, wk__complex_NAME",
    "vjp": "derivative, wk__vjp_NAME, or `none`",
    "keeps": "what the tape keeps when an argument requires grad: `self: other, shape(self); other: result`",
    "decompose": "in terms of other operators, wk__decompose_NAME; for rows that are neither `prim` nor composites nor "
    "pointwise bodies, which decompose themselves",
    "dims": "which dims a lowered body that is not pointwise tells from the others: one of DIMS and its argument. Without it "
    "those that an argument `dim` or `dims` names, or it is `own`",
    "batch": "how vmap makes one call of those for many examples (docs/design.md, section 8): one of BATCH and the arguments that "
    "may have a batch, all without names. Pointwise rows need none, and bodies that go along `dim` or last dims",
    "linear": "arguments that the row is linear in, by name: those of a group together, each group by itself: `self mat1; self mat2`. "
    "Views are, in their first one",
    "shape_only": "integer arguments that only the shape rule looks at: a lowered body finds sizes in its buffers",
    "at_launch": "integer arguments that a lowered body is given at launch, as numbers are",
    "unpromoted": "arguments that take no part in promotion",
    "clamps": "integer arguments for which what is below all integers is as good as the least: which diagonal",
    "one_device": "tensor arguments that have to be on one device, in the order in which PyTorch looks, each with the name that it says "
    "where that is another: `bias=self input=mat1`; or `all`, in the schema's order. Without it they are all of a row that is neither "
    "pointwise nor a composite",
    "complex": "number arguments, and lists of numbers, that may be complex",
    "long_lists": "lists of integers that may be longer than a tensor has dims",
    "grad_fn": "PyTorch's name of the tape's node where it is not the operator's with Backward0, then, where that holds only "
    "if it is given, an argument: `SumBackward1 dim`",
    "no_complex": "what is said of complex tensors: a kernel's name, or an error text in quotes, a RuntimeError's after that word",
    "kernel_name": "PyTorch's name of the kernel, in errors about dtypes that it does not have",
    "python": "where it is visible, one or more of FORMS; `internal` when it is not",
    "out": "which dtypes its out= form takes: one of OUT, then an error text where PyTorch has one of its own, behind a bar that of "
    "the form that writes self",
    "numbers": "what is done with numbers, one or more of NUMBERS",
    "raises": "what values may be wrong with, one or more of RAISES",
    "bad_index": "the words for an index that is out of range: one of BAD_INDEX",
    "autocast": "what autocast does with floating arguments: one of AUTOCAST or none, and ', cuda' with another one where CUDA differs",
    "cost": "what the profiler counts: one of COST and its argument",
    "tests": "what the generated tests leave out, one or more of TESTS",
    "samples": "inputs of the generated tests: Python argument lists, separated by ';'",
}

FLAGS = {
    "pointwise": "one loop over the broadcast shape of all tensor arguments",
    "comparison": "pointwise with a bool result; its in-place form keeps self's dtype",
    "core": "in PyTorch's core ATen set",
    "prim": "one of the primitives that programs are decomposed into",
    "view": "gives views (set for `view` rows)",
    "random": "draws from a generator: never cached, folded or merged",
    "mutates": "writes the arguments that the schema marks",
    "places": "gives argument 0 with some places written",
    "first_only": "of several results only the first has a derivative",
    "shapes_only": "of tensors it looks at shape, dtype and device: their memory need not be there",
    "own_dtype": "numbers are converted to argument 0's dtype and do not promote it",
    "out_apart": "out= may share no memory with an argument",
    "float8": "computes with float8 as well; the others only store it",
    "words": "computes with uint16, uint32 and uint64 as well; the others only store them",
    "fills": "one value for all elements: may write a tensor that overlaps itself",
    "halves": "of complex tensors: the same of the real parts and, after that, of the imaginary parts",
    "takes_complex": "a kernel that computes with complex tensors itself",
    "by_result": "in place the derivative is taken from the result, where it asks for argument 0",
    "dtype_from_out": "an out= gives the dtype that is computed in",
    "number_first": "in Python a number may stand for the first tensor: mul(2, x)",
    "number_copied": "in Python a number may stand for the second tensor: x.copy_(2)",
    "takes_numbers": "PyTorch takes numbers for tensors here and shows no overload for them",
    "unshown": "an overload for numbers that PyTorch's error texts do not show",
    "older_form": "PyTorch keeps an older form that its error texts do not show",
    "counts_out": "the warning of an out= that is resized counts elements",
    "more_overloads": "PyTorch has more overloads with as many arguments",
}
NUMBERS = {
    "passes": "the derivative gives numbers to operators of this kind as they are",
    "rounds": "beside small floats a number is rounded to them first",
    "launch": "not pointwise, but nothing except the launch looks at its numbers",
    "fixed": "some numbers have a body of their own (wk__fixed_numbers)",
}
FORMS = {
    "function": "wick.NAME",
    "hidden": "a function of the core alone: the package has it in nn.functional or elsewhere",
    "method": "Tensor.NAME",
    "inplace": "Tensor.NAME_, and NAME_ in the core",
    "inplace_function": "wick.NAME_",
    "inplace_hidden": "NAME_ in the core alone",
    "internal": "called by rules only; the core has it under its name",
}
OUT = {
    "none": "there is no out= form",
    "cast": "whatever the result can be converted to",
    "exact": "the result's dtype",
    "alike": "the result's dtype, in the words of loops whose operands all have one dtype",
    "bool": "bool or uint8",
    "float": "any floating dtype",
}
RAISES = {
    "index": "integers that say where elements are may be out of range",
    "division": "integers may be divided by zero",
}
BAD_INDEX = {
    "target": "a loss's class: Target 7 is out of bounds.",
    "row": "a row of a table: index out of range in self",
    "class": "a class's number: Class values must be smaller than num_classes.",
    "dim": "a RuntimeError that names the dim",
}
AUTOCAST = {
    "same": "as they are, and so are those of the composite's own calls",
    "lower": "to the small dtype that the program asked for: products",
    "float32": "to float32: what needs its range or its digits",
    "float32_rest": "the same, but for the first one, which the composite widens itself",
    "widest": "to the widest among them",
}
COST = {
    "product": "a matrix product; the argument whose last dim is summed over",
    "attention": "attention; the query's argument and how many products of its size are made",
    "gather": "reads no more of an argument than it gives out",
    "shape": "looks at the shapes of its arguments alone",
}
DIMS = {
    "own": "it is for the row alone to say: its tensors may have no more dims than a nest",
    "alike": "none: it goes over all elements one after the other",
    "along": "those that the argument names",
    "last": "the last, as many as the argument says or as it has sizes",
    "pairs": "those with a pair of numbers in the argument that are not 0, from the last on",
    "last_two": "the last two",
    "rows": "the last of the largest tensor; the others say which row, and a table of rows has two dims",
}
BATCH = {
    "lead": "a batch is one more first dim of tensors and sizes, and dims are counted on",
    "merge": "the first dim holds examples that are treated alike: a batch is merged into it",
    "own": "a function of its own, wk__batch_NAME",
}
TESTS = {
    "no_gradient": "derivatives are tested elsewhere",
    "no_half": "PyTorch has no kernel for half precision, and the row refuses it",
    "breaks": "what it gives depends on values, so that capture ends there",
}


class TableError(Exception):
    """A mistake in a file, with its place."""


@dataclass
class Entry:
    """A class or a row as it stands in a file: fields by name, each with its line."""

    file: str
    line: int
    head: str
    fields: dict = field(default_factory=dict)

    def fail(self, message, field_name=None):
        line = self.fields[field_name][1] if field_name in self.fields else self.line
        raise TableError(f"{self.file}:{line}: {message}")


@dataclass
class Saves:
    """What the tape keeps when one argument requires grad, as bits by position."""

    args: int = 0
    shapes: int = 0
    results: int = 0


@dataclass
class Row:
    """A row, checked. Empty texts stand for what is not there."""

    schema: schema.Schema
    where: Entry
    comment: str
    flags: set
    numbers: set
    forms: set
    how: str
    rule: dict  # of shape, lower, view, kernel, compose, vjp, decompose: the name after the field
    saves: list[Saves]
    dims: list
    batch: list
    linear: list
    shape_only: set
    at_launch: set
    unpromoted: set
    clamps: set
    one_device: list
    complex: set
    long_lists: set
    grad_fn: list
    kernel_name: str
    no_complex: str
    out: str
    out_words: str
    raises: set
    bad_index: str
    autocast: tuple  # of the CPU and of CUDA; empty: none
    cost: list
    tests: set
    samples: list[str]
    alias_of: str = ""  # the symbol of the row that this one is another name of

    @property
    def symbol(self):
        return self.schema.symbol


def hint(word, known):
    near = difflib.get_close_matches(word, list(known), 1)
    return f" (did you mean '{near[0]}'?)" if near else f" (known: {', '.join(sorted(known))})"


# ---- files ----


def read_entries(file, text):
    """Classes by name, rows in order with their comments."""
    classes, rows, aliases, entry, last, comment = {}, [], [], None, None, []
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            comment = [*comment, stripped.lstrip("# ")] if stripped else []
            continue
        depth = len(line) - len(line.lstrip())
        if depth == 0:
            entry, last = Entry(file, number, stripped), None
            if stripped.startswith(("alias ", "copy ")):
                aliases.append(entry)
                entry = None
            elif stripped.startswith("class "):
                name = stripped.removeprefix("class ").strip()
                if name in classes:
                    entry.fail(f"a second class named '{name}'")
                classes[name] = entry
            else:
                rows.append((entry, " ".join(comment)))
        elif entry is None:
            raise TableError(f"{file}:{number}: a field before the first row")
        elif depth > 2 and last:
            entry.fields[last] = (f"{entry.fields[last][0]} {stripped}", entry.fields[last][1])
        elif depth > 2:
            entry.head += " " + stripped
        else:
            last, _, value = stripped.partition(" ")
            if last not in FIELDS:
                raise TableError(f"{file}:{number}: there is no field '{last}'{hint(last, FIELDS)}")
            if last in entry.fields:
                raise TableError(f"{file}:{number}: a second '{last}'")
            entry.fields[last] = (value.strip(), number)
        comment = []
    return classes, rows, aliases


# ---- aliases ----

ALIAS_FLAGS = {
    "number_first",
    "number_copied",
    "takes_numbers",
    "unshown",
    "older_form",
    "more_overloads",
    "dtype_from_out",
}


def add_alias(entry, rows, known):
    """The rows that `alias NAME = TARGET` and `copy NAME = TARGET` stand for."""
    found = re.fullmatch(r"(alias|copy) (\w+) = (\w+)", entry.head)
    targets = [row for row in rows if found and row.schema.base == found[3]]
    if not targets:
        entry.fail(f"expected 'alias NAME = ROW' or 'copy NAME = ROW', not '{entry.head}'")
    for target in targets:
        made = Entry(entry.file, entry.line, target.where.head.replace(found[3], found[2], 1))
        copies = found[1] == "copy"
        if copies:
            made.head = re.sub(r"\(\w( -> \*)?\)", "", made.head)
            target = replace(target, forms={"function"}, out="none" if target.schema.result_is_list else "exact")
        rule = dict.fromkeys(target.rule, "") | {"compose": "view_copy" if copies else "alias"}
        row = replace(
            target, schema=schema.parse(made.head), where=made, comment=f"{'A copy of' if copies else 'Another name of'} {target.schema.name}.",
            flags=target.flags & ALIAS_FLAGS, numbers=set(), how="compose", rule=rule, saves=[], one_device=[], grad_fn=[], kernel_name="",
            bad_index="", raises=set(), autocast=(), cost=[], batch=[], linear=[], alias_of=target.symbol,
        )  # fmt: skip
        if row.schema.name in known:
            entry.fail(f"a second row named {row.schema.name}")
        known[row.schema.name] = row
        rows.append(row)


def inherit(entry, classes, seen=()):
    """The entry's fields with those of the classes that it is like."""
    fields = {}
    for name in entry.fields.get("like", ("", 0))[0].split():
        if name not in classes or name in seen:
            entry.fail(f"there is no class '{name}'{hint(name, classes)}", "like")
        merge(fields, inherit(classes[name], classes, (*seen, name)))
    own = {k: v[0] for k, v in entry.fields.items() if k != "like"}
    merge(fields, own)
    return fields


def merge(fields, more):
    for name, value in more.items():
        fields[name] = f"{fields[name]} {value}" if name == "is" and name in fields else value


# ---- rows ----


def words(entry, fields, name, known):
    found = set(fields.get(name, "").split())
    for word in sorted(found - set(known)):
        entry.fail(f"'{word}' is not a word of '{name}'{hint(word, known)}", name)
    return found


def one_of(entry, fields, name, known):
    found = words(entry, fields, name, known)
    if len(found) > 1:
        entry.fail(f"expected one word after '{name}'", name)
    return next(iter(found), "")


def parse_autocast(entry, fields):
    """The rules of the CPU and of CUDA: 'float32', or 'none, cuda float32' where they differ."""
    value = fields.get("autocast", "")
    match = re.fullmatch(r"(\w+)(?:, cuda (\w+))?", value)
    rules = ["none" if rule == "none" else rule for rule in (match.groups() if match else ())]
    if value and (not match or any(rule and rule != "none" and rule not in AUTOCAST for rule in rules)):
        entry.fail(f"expected one of {', '.join(AUTOCAST)}, and perhaps ', cuda' and another one", "autocast")
    return (rules[0], rules[1] or rules[0]) if rules else ()


def rule_names(entry, fields):
    rules = {"batch": ""}
    for name in ("shape", "vjp", "decompose", "pairs", "of_complex", *HOW):
        value = fields.get(name, "")
        if value and not re.fullmatch(r"\w+", value):
            entry.fail(f"expected one name after '{name}', not '{value}'", name)
        rules[name] = "" if value == "none" else value
    return rules


def parse_keeps(entry, s, text):
    """`self: other, shape(self); other: result` as a Saves for each argument."""
    saves = [Saves() for _ in s.parameters]
    for part in filter(None, (p.strip() for p in text.split(";"))):
        wanted, colon, kept = part.partition(":")
        which = s.index(wanted.strip())
        if which is None or not colon:
            entry.fail(f"'{wanted.strip()}' is no argument of {s.name}{hint(wanted.strip(), names_of(s))}", "keeps")
        for item in schema.split_commas(kept):
            keep_item(entry, s, saves[which], item)
    return saves


def names_of(s):
    return [p.name for p in s.parameters]


def result_index(s, item):
    """Which result `item` names: "result", "result 1" by position, "result indices" or, of no argument, "indices"."""
    word = item.removeprefix("result ")
    if item == "result" and len(s.results) == 1:
        return 0
    if word.isdecimal() and int(word) < len(s.results):
        return int(word)
    return next((r for r, result in enumerate(s.results) if result.name == word and word), None)


def keep_item(entry, s, saves, item):
    shape = re.fullmatch(r"shape\((\w+)\)", item)
    argument, result = s.index(shape[1] if shape else item), result_index(s, item)
    if shape and argument is not None:
        saves.shapes |= 1 << argument
    elif result is not None:
        saves.results |= 1 << result
    elif argument is not None:
        saves.args |= 1 << argument
    else:
        known = names_of(s) + ["result"] + [r.name for r in s.results if r.name]
        entry.fail(f"'{item}' is neither an argument nor a result of {s.name}{hint(item, known)}", "keeps")


def default_forms(s, flags):
    takes_self = s.parameters and s.parameters[0].type == "Tensor" and not s.parameters[0].is_list
    forms = {"function", "method"} if takes_self else {"function"}
    return forms | ({"inplace"} if "pointwise" in flags else set())


def default_out(s, flags):
    """Whatever makes one or more new tensors has an out= form."""
    new_like = "_like" in s.base or s.base.startswith("new_")
    gives_view = "view" in flags or any(r.alias for r in s.results[:1])
    return "none" if gives_view or "mutates" in flags or s.result_is_list or new_like else "cast"


def split_out(entry, text):
    """`exact "words"` as its rule and its words."""
    rule, _, said = text.partition(" ")
    if rule and rule not in OUT:
        entry.fail(f"'{rule}' is not a word of 'out'{hint(rule, OUT)}", "out")
    if said and not re.fullmatch(r'".*"', said.strip()):
        entry.fail("the error text of out stands in quotes", "out")
    return rule, said.strip().strip('"')


def parse_samples(entry, text):
    samples = [s.strip() for s in text.split(";") if s.strip()]
    for sample in samples:
        try:
            code = compile(f"f({sample})", "sample", "eval")
        except SyntaxError as error:
            entry.fail(f"sample '{sample}' is no argument list: {error.msg}", "samples")
        for word in sorted(set(code.co_names) - {"f"} - SAMPLE_WORDS):
            entry.fail(f"sample '{sample}' uses '{word}'{hint(word, SAMPLE_WORDS)}", "samples")
    return samples


def parse_grad_fn(entry, s, text):
    """The name, and the position of the argument that it needs."""
    name = text.split()
    if len(name) > 2 or (name[1:] and name[1] not in names_of(s)):
        entry.fail(f"'{text}' is not a name and, perhaps, an argument of {s.name}", "grad_fn")
    return [*name[:1], *(list(names_of(s)).index(n) for n in name[1:])]


def parse_cost(entry, text):
    cost = text.split()
    if cost and cost[0] not in COST:
        entry.fail(f"'{cost[0]}' is not a word of 'cost'{hint(cost[0], COST)}", "cost")
    return cost


def parse_one_device(entry, s, text):
    """[(argument, what it is called in the error)]"""
    tensors = [p.name for p in s.parameters if p.type == "Tensor"]
    said = (
        [(name, name) for name in tensors]
        if text == "all"
        else [(name, other or name) for name, _, other in (word.partition("=") for word in text.split())]
    )
    for name, _ in said:
        if name not in tensors:
            entry.fail(f"{s.name} has no tensor '{name}'{hint(name, tensors)}", "one_device")
    return said


def parse_dims(entry, s, how, flags, text):
    """A word of DIMS and the argument that it is about."""
    dims = text.split()
    if dims and dims[0] not in DIMS:
        entry.fail(f"'{dims[0]}' is not a word of 'dims'{hint(dims[0], DIMS)}", "dims")
    if dims[1:] and dims[1] not in names_of(s):
        entry.fail(f"{s.name} has no argument '{dims[1]}'{hint(dims[1], names_of(s))}", "dims")
    if how != "lower" or "pointwise" in flags:
        return ["own"]
    named = [name for name in names_of(s) if name in ("dim", "dims")]
    return dims or (["along", named[0]] if named else ["own"])


def parse_batch(entry, s, rules, dims, text):
    """A word of BATCH and its arguments; that of bodies that go along dims follows."""
    batch = text.split()
    if batch and batch[0] not in BATCH:
        entry.fail(f"'{batch[0]}' is not a word of 'batch'{hint(batch[0], BATCH)}", "batch")
    if batch and batch[0] == "own":
        rules["batch"] = batch[1]
        batch = ["own", *batch[2:]]
    for name in batch[1:]:
        if name not in names_of(s):
            entry.fail(f"{s.name} has no argument '{name}'{hint(name, names_of(s))}", "batch")
    return batch or (["lead"] if dims[0] in ("along", "last_two", "pairs") else [])


def parse_linear(entry, s, rules, text):
    """Groups of arguments as lists of names."""
    groups = [group.split() for group in filter(None, text.split(";"))]
    for name in (name for group in groups for name in group):
        if name not in names_of(s):
            entry.fail(f"{s.name} has no argument '{name}'{hint(name, names_of(s))}", "linear")
    return groups or ([[names_of(s)[0]]] if rules["view"] else [])


def check_decomposition(entry, s, flags, rules, how):
    """A composite has its parts and a pointwise body what it does to an element; others say what they are made of."""
    said = ("prim" in flags) + bool(rules["decompose"])
    if said > 1 or (said and how == "compose"):
        entry.fail(f"{s.name} is decomposed in more than one way")
    if not said and how != "compose" and not (how == "lower" and "pointwise" in flags):
        entry.fail(f"{s.name} needs 'decompose NAME' or 'is prim': it is neither a composite nor a pointwise body")


def check_mutating(entry, s, flags, how):
    """What a row that mutates gives is what it has written, or new: graphs hold one of the two kinds for it. The parts of
    a composite say themselves what they write."""
    written = any(p.written for p in s.parameters)
    if written and "mutates" not in flags and how != "compose":
        entry.fail(f"{s.name} marks an argument as written and is not flagged 'mutates'")
    if "mutates" in flags and not written:
        entry.fail(f"{s.name} is flagged 'mutates' and marks no argument as written")
    if "mutates" in flags and len({bool(r.alias) for r in s.results}) > 1:
        entry.fail(f"{s.name} gives arguments that it has written beside new tensors")


def check_complex(entry, s, flags, rules, how):
    """How complex tensors are computed with: in one way, beside how all others are."""
    ways = ("halves" in flags) + bool(rules["pairs"]) + bool(rules["of_complex"])
    if ways > 1:
        entry.fail(f"{s.name} computes with complex tensors in more than one way")
    if ways and how in ("view", "compose"):
        entry.fail(f"{s.name} computes nothing itself: what it calls says how complex tensors are computed with")
    if rules["pairs"] and how != "lower":
        entry.fail(f"{s.name} has a body on pairs and none on numbers", "pairs")


def make_row(entry, comment, classes):
    fields = inherit(entry, classes)
    try:
        s = schema.parse(entry.head)
    except schema.SchemaError as error:
        entry.fail(f"{error}, in '{entry.head}'")
    flags = words(entry, fields, "is", FLAGS)
    rules = rule_names(entry, fields)
    how = [name for name in HOW if rules[name]]
    if len(how) != 1:
        entry.fail(f"{s.name} has to be computed in one way: {', '.join(HOW)}")
    if how[0] == "view":
        flags.add("view")
    if "comparison" in flags:
        flags.add("pointwise")
    check_decomposition(entry, s, flags, rules, how[0])
    check_mutating(entry, s, flags, how[0])
    check_complex(entry, s, flags, rules, how[0])
    out, out_words = split_out(entry, fields.get("out", ""))
    if fields.get("keeps") and not rules["vjp"]:
        entry.fail(f"{s.name} keeps tensors for a derivative that it does not have", "keeps")
    dims = parse_dims(entry, s, how[0], flags, fields.get("dims", ""))
    return Row(
        schema=s,
        where=entry,
        comment=comment,
        flags=flags,
        numbers=words(entry, fields, "numbers", NUMBERS),
        forms=words(entry, fields, "python", FORMS) or default_forms(s, flags),
        how=how[0],
        rule=rules,
        dims=dims,
        batch=parse_batch(entry, s, rules, dims, fields.get("batch", "")),
        linear=parse_linear(entry, s, rules, fields.get("linear", "")),
        saves=parse_keeps(entry, s, fields.get("keeps", "")),
        shape_only=words(entry, fields, "shape_only", names_of(s)),
        at_launch=words(entry, fields, "at_launch", names_of(s)),
        unpromoted=words(entry, fields, "unpromoted", names_of(s)),
        clamps=words(entry, fields, "clamps", names_of(s)),
        one_device=parse_one_device(entry, s, fields.get("one_device", "")),
        complex=words(entry, fields, "complex", names_of(s)),
        long_lists=words(entry, fields, "long_lists", names_of(s)),
        grad_fn=parse_grad_fn(entry, s, fields.get("grad_fn", "")),
        kernel_name=fields.get("kernel_name", ""),
        no_complex=fields.get("no_complex", "").strip('"'),
        out=out or default_out(s, flags),
        out_words=out_words,
        raises=words(entry, fields, "raises", RAISES),
        bad_index=one_of(entry, fields, "bad_index", BAD_INDEX),
        autocast=parse_autocast(entry, fields),
        cost=parse_cost(entry, fields.get("cost", "")),
        tests=words(entry, fields, "tests", TESTS),
        samples=parse_samples(entry, fields.get("samples", "")),
    )


def read(paths):
    """All rows of the files, in their order. Raises TableError at the first mistake."""
    classes, entries, aliases = {}, [], []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            more, rows, others = read_entries(str(path), file.read())
        aliases += others
        for name, entry in more.items():
            if name in classes:
                entry.fail(f"a second class named '{name}': the first is in {classes[name].file}")
            classes[name] = entry
        entries += rows
    rows, known = [], {}
    for entry, comment in entries:
        row = make_row(entry, comment, classes)
        if row.schema.name in known:
            first = known[row.schema.name].where
            entry.fail(f"a second row named {row.schema.name}: the first is at {first.file}:{first.line}")
        known[row.schema.name] = row
        rows.append(row)
    for entry in aliases:
        add_alias(entry, rows, known)
    return rows
