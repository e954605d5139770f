"""Writes the rows as constant C records: nothing is parsed when the library is loaded.

numbers(rows)    op_table.h: the number of each operator, and the position of each argument by name
rules(rows)      rules.h: prototypes of every function that rows name, so that a missing one is an error of the linker
records(rows)    records.c: schemas, records, and the table of names, which wk_op_find looks up
decompositions   decompose_rules.h and decompose_table.c: what each row is decomposed by
levels           level_rules.h and level_table.c: how each row is computed for many examples, and what it is linear in
"""

from . import functions, language, schema

KINDS = {
    "Tensor": "TENSOR",
    "Scalar": "SCALAR",
    "int": "INT",
    "SymInt": "INT",
    "float": "FLOAT",
    "bool": "BOOL",
    "str": "STRING",
    "ScalarType": "DTYPE",
    "Device": "DEVICE",
    "Generator": "GENERATOR",
    "MemoryFormat": "MEMORY_FORMAT",
    "Layout": "STRING",
}
LIST_KINDS = {
    "Tensor": "TENSORS",
    "int": "INTS",
    "SymInt": "INTS",
    "float": "FLOATS",
    "bool": "BOOLS",
    "Scalar": "SCALARS",
}
FUNCTION_TYPES = {
    "shape": ("wk__meta_fn", "wk__meta_"),
    "vjp": ("wk__vjp_fn", "wk__vjp_"),
    "lower": ("wk__lower_fn", "wk__lower_"),
    "view": ("wk__kernel_fn", "wk__view_"),
    "routine": ("wk__kernel_fn", "wk__routine_"),
    "compose": ("wk__kernel_fn", "wk__compose_"),
    "pairs": ("wk__lower_fn", "wk__pairs_"),
    "of_complex": ("wk__kernel_fn", "wk__complex_"),
}
WRITTEN = "/* Generated from src/ops/tables by tools/generate_operators.py. */"


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def flags_of(prefix, words):
    return " | ".join(prefix + w.upper() for w in words) or "0"


# ---- numbers ----


def numbers(rows):
    out = [WRITTEN, "#ifndef WICK_OPS_TABLE_H", "#define WICK_OPS_TABLE_H", "", "enum {"]
    out += [f"  WK__OP_{row.symbol}," for row in rows]
    out += ["  WK__OP_COUNT", "};", ""]
    out.append("/* WK__ARG(add_Tensor, alpha) is the position of an argument. */")
    for row in rows:
        if row.schema.parameters:
            names = ", ".join(f"WK__ARG_{row.symbol}_{p.name}" for p in row.schema.parameters)
            short = ", ".join(f"A_{p.name}" for p in row.schema.parameters)
            out += [f"enum {{ {names} }};", f"#define WK__ARGS_{row.symbol} enum {{ {short} }}"]
    return "\n".join([*out, "", "#endif", ""])


# ---- prototypes ----


def rules(rows):
    out = [WRITTEN, "#ifndef WICK_OPS_RULES_H", "#define WICK_OPS_RULES_H", "", '#include "ops/ops.h"', ""]
    for name, (function_type, prefix) in FUNCTION_TYPES.items():
        named = dict.fromkeys(row.rule[name] for row in rows if row.rule[name])
        out += [f"{function_type} {prefix}{rule};" for rule in named]
    return "\n".join([*out, "", "#endif", ""])


def kernels_header(rows):
    """The CPU's code of rows with a kernel."""
    named = dict.fromkeys(row.rule["kernel"] for row in rows if row.rule["kernel"])
    return "\n".join(
        [WRITTEN, "#ifndef WICK_CPU_KERNELS_H", "#define WICK_CPU_KERNELS_H", "", '#include "ops/ops.h"', ""]
        + [f"wk__kernel_fn wk__cpu_{rule};" for rule in named]
        + ["extern wk__kernel_fn *const wk__cpu_kernels[WK__OP_COUNT]; /* by operator */", "", "#endif", ""]
    )


def kernels(rows):
    out = [WRITTEN, '#include "cpu/kernels.h"', "", "wk__kernel_fn *const wk__cpu_kernels[WK__OP_COUNT] = {"]
    out += [f"    [WK__OP_{row.symbol}] = wk__cpu_{row.rule['kernel']}," for row in rows if row.rule["kernel"]]
    return "\n".join([*out, "};", ""])


def decompose_rules(rows):
    named = dict.fromkeys(row.rule["decompose"] for row in rows if row.rule["decompose"])
    return "\n".join([WRITTEN, *(f"wk__decompose_fn wk__decompose_{rule};" for rule in named), ""])


def decompositions(rows):
    out = [WRITTEN, '#include "decompose/decompose.h"', ""]
    out.append("wk__decompose_fn *const wk__decompose_rules[WK__OP_COUNT] = {")
    for row in rows:
        if row.rule["decompose"]:
            out.append(f"    [WK__OP_{row.symbol}] = wk__decompose_{row.rule['decompose']},")
    return "\n".join([*out, "};", ""])


# ---- levels ----


def level_rules(rows):
    named = dict.fromkeys(row.rule["batch"] for row in rows if row.rule["batch"])
    return "\n".join([WRITTEN, *(f"wk__batch_fn wk__batch_{rule};" for rule in named), ""])


DIM_NAMES = {"dim", "dims", "dim0", "dim1", "dim2", "dimension"}
SIZE_NAMES = {"size", "input_sizes"}


def names_of(row):
    return [p.name for p in row.schema.parameters]


def bits(row, names):
    return " | ".join(f"1u << WK__ARG_{row.symbol}_{name}" for name in names) or "0"


def level_row(row):
    kind, *names = row.batch or ["loop"]
    names = names or [p.name for p in row.schema.parameters if p.type == "Tensor"]
    fields = [f".batch = WK__BATCH_{kind.upper()}", f".batch_args = {bits(row, names)}"]
    if kind in ("lead", "own"):
        dims = [] if row.dims[0] == "last" else [n for n in names_of(row) if n in DIM_NAMES]
        sizes = [p.name for p in row.schema.parameters if p.name in SIZE_NAMES and p.is_list]
        fields += [f".dims = {bits(row, dims)}", f".sizes = {bits(row, sizes)}"]
    if row.rule["batch"]:
        fields.append(f".own = wk__batch_{row.rule['batch']}")
    if row.linear:
        fields.append(f".linear = {{{', '.join(bits(row, group) for group in row.linear)}}}")
    return f"    [WK__OP_{row.symbol}] = {{{', '.join(fields)}}},"


def levels(rows):
    said = [row for row in rows if row.batch or row.linear]
    out = [WRITTEN, '#include "levels/internal.h"', "", "const wk__level_row wk__level_rows[WK__OP_COUNT] = {"]
    return "\n".join([*out, *map(level_row, said), "};", ""])


# ---- records ----


class Shared:
    """Constant arrays that several records use, each written once."""

    def __init__(self, declaration):
        self.declaration, self.known, self.lines = declaration, {}, []

    def name(self, items):
        text = ", ".join(items)
        if text not in self.known:
            self.known[text] = self.declaration.rpartition("*")[2].rpartition(" ")[2] + f"_{len(self.known)}"
            self.lines.append(f"static {self.declaration}_{len(self.known) - 1}[] = {{{text}}};")
        return self.known[text]


def default_list(p):
    """A list has an address also when it is empty."""
    pointer, tag, member = functions.LISTS[p.type]
    items = [default_item(p.type, item) for item in p.default_items]
    array = f"({pointer.removesuffix('*').strip()}[{len(items) or 1}]){{{', '.join(items)}}}"
    return f".tag = WK_VALUE_{tag}, .count = {len(items)}, .{member} = {array}"


def default_item(kind, text):
    if kind == "Scalar":
        return f"{{{plain_default(kind, text)}}}"
    return f"{{{text}}}" if kind in ("int", "SymInt") else text.lower()


def plain_default(kind, text):
    """The initialiser of one thing."""
    if text in ("True", "False"):
        return f".tag = WK_VALUE_BOOL, .boolean = {text.lower()}"
    if text.startswith("'"):
        return f".tag = WK_VALUE_STRING, .string = {quoted(text[1:-1])}"
    if kind == "float" or (kind == "Scalar" and ("." in text or "e" in text)):
        return f".tag = WK_VALUE_DOUBLE, .number = {text}"
    return f".tag = WK_VALUE_INT, .integer = {{{text}}}"


def default_value(p):
    if p.default is None or p.default == "None":
        return ""
    return plain_default(p.type, p.default) if p.default_items is None else default_list(p)


def parameter(row, p):
    fields = [f".name = {quoted(p.name)}", f".type = WK__TYPE_{(LIST_KINDS if p.is_list else KINDS)[p.type]}"]
    marks = {
        "optional": p.optional,
        "keyword_only": p.keyword_only,
        "has_default": p.default is not None,
        "written": p.written,
        "optional_items": p.optional_items,
        "symbolic": p.type == "SymInt",
        "shape_only": p.name in row.shape_only,
        "at_launch": p.name in row.at_launch,
        "unpromoted": p.name in row.unpromoted,
        "clamps": p.name in row.clamps,
        "complex": p.name in row.complex,
        "long_list": p.name in row.long_lists,
    }
    fields += [f".{name} = true" for name, holds in marks.items() if holds]
    if p.size:
        fields.append(f".fixed_count = {p.size}")
    if default_value(p):
        fields.append(f".default_value = {{{default_value(p)}}}")
    return "{" + ", ".join(fields) + "}"


def schema_fields(row, parameters, result_names):
    s = row.schema
    fields = [f".parameter_count = {len(s.parameters)}", f".positional_count = {s.positional_count}"]
    fields.append(f".result_count = {len(s.results)}")
    if s.parameters:
        fields.append(f".parameters = {parameters.name([parameter(row, p) for p in s.parameters])}")
    if s.result_is_list:
        fields.append(".result_is_list = true")
    letters = [p.alias for p in s.parameters]
    aliases = [str(letters.index(r.alias) + 1) if r.alias and r.alias in letters else "0" for r in s.results]
    if any(a != "0" for a in aliases):
        fields.append(f".result_alias = {{{', '.join(aliases)}}}")
    if len(s.results) > 1 and all(r.name for r in s.results):
        fields.append(f".result_names = {result_names.name([quoted(r.name) for r in s.results])}")
    return "{" + ", ".join(fields) + "}"


def save(s):
    return f"{{{s.args:#x}, {s.shapes:#x}, {s.results:#x}}}"


def tags_of(row):
    """Flags, what is said of numbers and what values may be wrong with, as bits of one word."""
    words = sorted(row.flags - {"halves", "takes_complex"}) + [f"{n}_numbers" for n in sorted(row.numbers)]
    words += [f"raises_{w}" for w in sorted(row.raises)]
    if {"dtype", "device"} <= {p.name for p in row.schema.parameters}:
        words.append("names_dtype")
    return flags_of("WK__TAG_", words)


def cost_fields(row):
    if not row.cost:
        return []
    kind, *rest = row.cost
    fields = [f".cost = WK__COST_{kind.upper()}"]
    if rest:
        fields.append(f".cost_arg = WK__ARG_{row.symbol}_{rest[0]}")
    if len(rest) > 1:
        fields.append(f".cost_factor = {rest[1]}")
    return fields


def dims_fields(row):
    rule, *argument = row.dims
    if rule == "own":
        return []
    fields = [f".dims_rule = WK__DIMS_{rule.upper()}"]
    return fields + [f".dims_arg = WK__ARG_{row.symbol}_{name}" for name in argument]


def one_device_fields(row, said):
    if not row.one_device:
        return []
    items = [f"{{{names_of(row).index(name)}, {quoted(other)}}}" for name, other in row.one_device]
    return [f".one_device_count = {len(items)}", f".one_device = {said.name(items)}"]


def record(row, parameters, result_names, saves, said):
    s = row.schema
    fields = [
        f".name = {quoted(s.name)}",
        f".base_name = {quoted(s.base)}",
        f".schema_text = {quoted(s.text)}",
        f".number = WK__OP_{row.symbol}",
        f".tags = {tags_of(row)}",
        f".forms = {flags_of('WK__FORM_', sorted(row.forms))}",
        f".schema = {schema_fields(row, parameters, result_names)}",
        f".out = WK__OUT_{row.out.upper()}",
    ]
    fields += [
        f".{'meta' if name == 'shape' else name} = {prefix}{row.rule[name]}"
        for name, (_, prefix) in FUNCTION_TYPES.items()
        if row.rule[name]
    ]
    if row.rule["kernel"]:
        fields.append(".has_kernel = true")
    if "halves" in row.flags:
        fields.append(".halves = true")
    if "takes_complex" in row.flags:
        fields.append(".takes_complex = true")
    if row.rule["vjp"]:
        fields.append(f".saves = {saves.name([save(x) for x in row.saves])}")
    if row.grad_fn:
        fields.append(f".grad_fn_name = {quoted(row.grad_fn[0])}")
    if row.grad_fn[1:]:
        fields.append(f".grad_fn_arg = {row.grad_fn[1] + 1}")
    if row.kernel_name:
        fields.append(f".kernel_name = {quoted(row.kernel_name)}")
    if row.no_complex:
        fields.append(f".no_complex = {quoted(row.no_complex)}")
    if row.out_words:
        fields.append(f".out_words = {quoted(row.out_words)}")
    if row.alias_of:
        fields.append(f".alias_of = WK__OP_{row.alias_of}")
    if row.autocast:
        rules = ", ".join(f"WK__AUTOCAST_{rule.upper()}" for rule in row.autocast)
        fields.append(f".autocast = {{{rules}}}")
    if row.bad_index:
        fields.append(f".bad_index = WK__BAD_INDEX_{row.bad_index.upper()}")
    fields += cost_fields(row) + dims_fields(row) + one_device_fields(row, said)
    return f"    [WK__OP_{row.symbol}] = {{{', '.join(fields)}}},"


def hash_name(name):
    """FNV-1a, as wk_op_find computes it."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return h


def names_table(rows):
    """Open addressing, half full at most: a slot holds 1 + the number of an operator, or 0."""
    size = 1 << (2 * len(rows) - 1).bit_length()
    slots = [0] * size
    for number, row in enumerate(rows):
        at = hash_name(row.schema.name) % size
        while slots[at]:
            at = (at + 1) % size
        slots[at] = number + 1
    return [
        "extern const uint32_t wk__op_name_slots;",
        "extern const uint16_t wk__op_by_name[];",
        f"const uint32_t wk__op_name_slots = {size};",
        f"const uint16_t wk__op_by_name[] = {{{', '.join(map(str, slots))}}};",
    ]


def records(rows):
    parameters = Shared("const wk__parameter parameters")
    result_names = Shared("const char *const result_names")
    saves = Shared("const wk__saves saves")
    said = Shared("const wk__said_argument said")
    body = [record(row, parameters, result_names, saves, said) for row in rows]
    out = [WRITTEN, '#include "ops/rules.h"', "", ""]
    limits = f"WK__MAX_ARGS == {schema.MAX_PARAMETERS} && WK__MAX_RESULTS == {schema.MAX_RESULTS}"
    out += [f'_Static_assert({limits}, "tools/ops/schema.py has other limits");', ""]
    out += parameters.lines + result_names.lines + saves.lines + said.lines
    out += [
        "",
        "__attribute__((aligned(64))) const struct wk_op wk__op_table[WK__OP_COUNT] = {",
        *body,
        "};",
        "",
        *names_table(rows),
        "",
    ]
    return "\n".join(out)


assert set(language.HOW) - {"kernel"} <= set(FUNCTION_TYPES)
