/* Loads, stores and atomics of blocks of pointers. Neighbours that lie side by side are one access, where their address
 * and mask allow it. Test: tests/cuda/test_tiles.py. */
#include "codegen/ptx_tile_internal.h"

/* ---- vectors ---- */

int vector_bits_of(const tile_writer *w, wk__tile pointer, wk__tile mask, const layout *l) {
  const wk__tile_type *t = type_at(w, pointer);
  int size = wk__dtypes[t->dtype].size, best = 0, first, count;
  if (size < 2 || (size == 2 && class_of(&(wk__tile_type){.dtype = t->dtype, .shape = {1, 1, 1}}) != CLASS_H)) return 0;
  for (int d = 0; d < t->ndim; d++) {
    bits_of_dim(t, d, &first, &count);
    for (int e = 1; e <= count && (size << e) <= 16 && first + e <= l->bits && l->bit[first + e - 1] == e - 1; e++) {
      progress p = progress_of(w, pointer, d, e, 0);
      if (p.how != NEXT || p.zeros < e) break;
      if (mask && progress_of(w, mask, d, e, 0).how != SAME) break;
      best = e > best ? e : best;
    }
  }
  return best;
}

/* What an instruction reads of a block of pointers: each 2^n-th register. */
static int step_of_use(tile_writer *w, wk__tile u, int operand) {
  const wk__tile_instr *i = instr_at(w, u);
  if (i->op == WK__TILE_load && operand == 0)
    return vector_bits_of(w, i->operands[0], i->operands[1], &w->layouts[w->own[u]]);
  if (i->op == WK__TILE_store && operand == 0)
    return vector_bits_of(w, i->operands[0], i->operands[2], &w->layouts[store_layout(w, u)]);
  if ((i->op == WK__TILE_offset && operand == 0 && !w->free[u]) || i->op == WK__TILE_carry) return w->step[u];
  return i->op == WK__TILE_set ? w->step[i->operands[0]] : 0;
}

/* The address of an access is that of its first element: a loop need not carry the others on. */
void find_steps(tile_writer *w) {
  bool changed = true;
  memset(w->step, 5, (size_t)w->k->count);
  while (changed) {
    changed = false;
    for (wk__tile u = 1; u < w->k->count; u++)
      for (int o = 0; o < 4; o++) {
        wk__tile x = instr_at(w, u)->operands[o];
        if (!x || !type_at(w, x)->pointer || type_at(w, x)->ndim == 0) continue;
        if (instr_at(w, u)->op == WK__TILE_set && o == 0) continue;
        int step = w->variant_count[x] > 1 ? 0 : step_of_use(w, u, o);
        if (step >= w->step[x]) continue;
        w->step[x] = (uint8_t)step, changed = true;
      }
  }
  for (wk__tile v = 1; v < w->k->count; v++)
    if (!type_at(w, v)->pointer || type_at(w, v)->ndim == 0) w->step[v] = 0;
}

/* Words (or doubles) of an access: what its braces hold. */
typedef struct access {
  int count; /* registers in the braces */
  char letter;
  const char *type;
} access;

static access access_of(const wk__tile_type *t, int bits) {
  switch (class_of(t)) {
    case CLASS_D:
      return (access){1 << bits, 'd', "b64"};
    case CLASS_H:
      if (bits == 0) return (access){1, 'h', "b16"};
      return (access){1 << (bits - 1), 'r', "b32"};
    case CLASS_P:
      return (access){1, 'r', "u8"};
    default:
      break;
  }
  bool is_unsigned = wk__dtype_is_unsigned(t->dtype);
  int size = wk__dtypes[t->dtype].size;
  return (access){1 << bits, 'r',
                  size == 1   ? is_unsigned ? "u8" : "s8"
                  : size == 2 ? is_unsigned ? "u16" : "s16"
                              : "b32"};
}

static void braces(tile_writer *w, const access *a, int first) {
  if (a->count > 1) wk__string_append(&w->text.code, "{");
  for (int n = 0; n < a->count; n++) wk__string_printf(&w->text.code, "%s%%%c%d", n ? ", " : "", a->letter, first + n);
  if (a->count > 1) wk__string_append(&w->text.code, "}");
}

static void guard(tile_writer *w, int predicate) {
  wk__string_append(&w->text.code, "\t");
  if (predicate >= 0) wk__string_printf(&w->text.code, "@%%p%d ", predicate);
}

static const char *vector_name(int count) { return count == 4 ? ".v4" : count == 2 ? ".v2" : ""; }

/* ---- loads ---- */

/* Between registers of elements and what the braces hold, for halves and bools. */
static void pack(tile_writer *w, const wk__tile_type *t, const access *a, int elements, int first, bool unpack) {
  if (class_of(t) == CLASS_H && a->letter == 'r')
    for (int n = 0; n < a->count; n++)
      if (unpack)
        SAY("mov.b32 {%%h%d, %%h%d}, %%r%d", elements + 2 * n, elements + 2 * n + 1, first + n);
      else
        SAY("mov.b32 %%r%d, {%%h%d, %%h%d}", first + n, elements + 2 * n, elements + 2 * n + 1);
  else if (class_of(t) == CLASS_P && unpack)
    SAY("setp.ne.u32 %%p%d, %%r%d, 0", elements, first);
  else if (class_of(t) == CLASS_P)
    SAY("selp.u32 %%r%d, 1, 0, %%p%d", first, elements);
}

static bool is_packed(const wk__tile_type *t, const access *a) {
  return class_of(t) == CLASS_P || (class_of(t) == CLASS_H && a->letter == 'r');
}

int emit_load(tile_writer *w, wk__tile v, int at) {
  const wk__tile_instr *i = instr_at(w, v);
  const layout *l = &w->layouts[at];
  int bits = vector_bits_of(w, i->operands[0], i->operands[1], l), count = registers_of(l), each = 1 << bits;
  int pointer = base_of(w, i->operands[0], at), mask = base_of(w, i->operands[1], at),
      other = base_of(w, i->operands[2], at);
  access a = access_of(&i->type, bits);
  reg_class c = class_of(&i->type);
  int out = new_registers(w, c, count);
  wk__tile_instr zero = {.type = i->type,
                         .number = {.category = is_float_type(&i->type) ? WK__FLOAT_KIND : WK__INTEGER_KIND}};
  for (int r = 0; r < count; r += each) {
    bool packed = is_packed(&i->type, &a);
    int into = packed ? wk__ptx_words(&w->text, a.count) : out + r;
    if (i->operands[1]) {
      for (int e = r; e < r + each; e++)
        if (i->operands[2])
          move_register(w, c, out + e, other + e);
        else
          emit_constant(w, &zero, out + e, 1);
      pack(w, &i->type, &a, out + r, into, false);
    }
    guard(w, i->operands[1] ? mask + r : -1);
    wk__string_printf(&w->text.code, "ld.global%s.%s ", vector_name(a.count), a.type);
    braces(w, &a, into);
    wk__string_printf(&w->text.code, ", [%%d%d];\n", pointer + r);
    pack(w, &i->type, &a, out + r, into, true);
  }
  return out;
}

/* ---- stores ---- */

int primary(tile_writer *w, const layout *l) {
  int unused = unused_threads(w, l);
  if (!unused) return -1;
  int p = new_registers(w, CLASS_P, 1);
  SAY("setp.eq.u32 %%p%d, %%r%d, 0", p, WITH("and.b32", w->tid, unused));
  return p;
}

/* Both of two predicates, one of which may be -1. */
static int both(tile_writer *w, int p, int q) {
  if (p < 0 || q < 0) return p < 0 ? q : p;
  int r = new_registers(w, CLASS_P, 1);
  SAY("and.pred %%p%d, %%p%d, %%p%d", r, p, q);
  return r;
}

static int layout_of_store(tile_writer *w, wk__tile v) {
  wk__tile pointer = instr_at(w, v)->operands[0];
  for (int n = 0; n < w->variant_count[pointer]; n++) {
    int at = w->variants[pointer][n].layout, found = 0;
    for (int m = 0; m < w->variant_count[instr_at(w, v)->operands[1]]; m++)
      found |= w->variants[instr_at(w, v)->operands[1]][m].layout == at;
    if (at == store_layout(w, v) && found) return at;
  }
  w->unsupported = true;
  return 1;
}

void emit_store(tile_writer *w, wk__tile v) {
  const wk__tile_instr *i = instr_at(w, v);
  int at = layout_of_store(w, v);
  const layout *l = &w->layouts[at];
  const wk__tile_type *t = type_at(w, i->operands[1]);
  int bits = vector_bits_of(w, i->operands[0], i->operands[2], l), count = registers_of(l), each = 1 << bits;
  int pointer = base_of(w, i->operands[0], at), value = base_of(w, i->operands[1], at),
      mask = base_of(w, i->operands[2], at);
  access a = access_of(t, bits);
  int one = primary(w, l);
  for (int r = 0; r < count; r += each) {
    int from = value + r, p = both(w, one, i->operands[2] ? mask + r : -1);
    if (is_packed(t, &a)) {
      from = wk__ptx_words(&w->text, a.count);
      pack(w, t, &a, value + r, from, false);
    }
    guard(w, p);
    wk__string_printf(&w->text.code, "st.global%s.%s [%%d%d], ", vector_name(a.count), a.type, pointer + r);
    braces(w, &a, from);
    wk__string_append(&w->text.code, ";\n");
  }
}

/* ---- atomics ---- */

static bool is_used(const tile_writer *w, wk__tile v) {
  for (wk__tile u = v + 1; u < w->k->count; u++)
    for (int o = 0; o < 4; o++)
      if (w->k->instrs[u].operands[o] == v) return true;
  return false;
}

/* "add.f32", NULL: the device has none. */
static const char *atomic_name(const tile_writer *w, wk__tile_atomic how, const wk__tile_type *t) {
  static const char *const integers[WK__TILE_ATOMICS][2][2] = {
      /* 32 and 64 bits, signed and unsigned */
      [WK__TILE_ADD] = {{"add.u32", "add.u32"}, {"add.u64", "add.u64"}},
      [WK__TILE_MAX] = {{"max.s32", "max.u32"}, {"max.s64", "max.u64"}},
      [WK__TILE_MIN] = {{"min.s32", "min.u32"}, {"min.s64", "min.u64"}},
      [WK__TILE_AND] = {{"and.b32", "and.b32"}, {"and.b64", "and.b64"}},
      [WK__TILE_OR] = {{"or.b32", "or.b32"}, {"or.b64", "or.b64"}},
      [WK__TILE_XOR] = {{"xor.b32", "xor.b32"}, {"xor.b64", "xor.b64"}},
      [WK__TILE_XCHG] = {{"exch.b32", "exch.b32"}, {"exch.b64", "exch.b64"}},
      [WK__TILE_CAS] = {{"cas.b32", "cas.b32"}, {"cas.b64", "cas.b64"}}};
  int size = wk__dtypes[t->dtype].size;
  if (is_float_type(t) && how == WK__TILE_ADD) {
    if (t->dtype == WK_BFLOAT16) return w->kind->capability >= 90 ? "add.noftz.bf16" : NULL;
    return t->dtype == WK_FLOAT16 ? "add.noftz.f16" : size == 4 ? "add.f32" : "add.f64";
  }
  if (size < 4 || (is_float_type(t) && (how == WK__TILE_MAX || how == WK__TILE_MIN))) return NULL;
  return integers[how][size == 8][wk__dtype_is_unsigned(t->dtype)];
}

/* A scalar is one thread's, behind what all have done before and in front of what they do then. */
int emit_atomic(tile_writer *w, wk__tile v, int at) {
  const wk__tile_instr *i = instr_at(w, v);
  const layout *l = &w->layouts[at];
  reg_class c = class_of(&i->type);
  int count = registers_of(l), out = new_registers(w, c, count), one = primary(w, l);
  int pointer = base_of(w, i->operands[0], at), value = base_of(w, i->operands[1], at);
  int mask = base_of(w, i->operands[2], at), compared = base_of(w, i->operands[3], at);
  const char *name = atomic_name(w, (wk__tile_atomic)i->number.i, &i->type);
  wk__tile_instr zero = {.type = i->type,
                         .number = {.category = is_float_type(&i->type) ? WK__FLOAT_KIND : WK__INTEGER_KIND}};
  if (!name) {
    w->unsupported = true;
    return out;
  }
  SAY("bar.sync 0;\n\tmembar.gl");
  for (int r = 0; r < count; r++) {
    int p = both(w, one, i->operands[2] ? mask + r : -1);
    if (p >= 0) emit_constant(w, &zero, out + r, 1);
    guard(w, p);
    wk__string_printf(&w->text.code, "atom.global.%s %%%c%d, [%%d%d], ", name, class_letter[c], out + r, pointer + r);
    if (i->number.i == WK__TILE_CAS) wk__string_printf(&w->text.code, "%%%c%d, ", class_letter[c], compared + r);
    wk__string_printf(&w->text.code, "%%%c%d;\n", class_letter[c], value + r);
  }
  SAY("membar.gl");
  if (one >= 0 && is_used(w, v)) {
    int address = TWO("add.u32", w->shared_base, WITH("mul.lo.u32", w->place[at], shared_item(&i->type)));
    need_shared(w, wk__tile_elements(&i->type) * shared_item(&i->type));
    SAY("bar.sync 0");
    for (int r = 0; r < count; r++)
      store_shared(w, &i->type, out + r, address, position_of(l, r) * shared_item(&i->type), one);
    SAY("bar.sync 0");
    for (int r = 0; r < count; r++)
      load_shared(w, &i->type, out + r, address, position_of(l, r) * shared_item(&i->type));
  } else {
    SAY("bar.sync 0");
  }
  return out;
}
