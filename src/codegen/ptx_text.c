/* Lines and registers of hand-written kernels. Tests: tests/cuda/test_attention.py. */
#include "codegen/ptx_text.h"

void wk__ptx_say(wk__ptx_text *t, const char *format, ...) {
  va_list args;
  va_start(args, format);
  wk__string_append(&t->code, "\t");
  wk__string_vprintf(&t->code, format, args);
  wk__string_append(&t->code, ";\n");
  va_end(args);
}

void wk__ptx_label(wk__ptx_text *t, int label) { wk__string_printf(&t->code, "L%d:\n", label); }

int wk__ptx_two(wk__ptx_text *t, const char *op, int a, int b) {
  int r = wk__ptx_words(t, 1);
  wk__ptx_say(t, "%s %%r%d, %%r%d, %%r%d", op, r, a, b);
  return r;
}

int wk__ptx_with(wk__ptx_text *t, const char *op, int a, int64_t constant) {
  int r = wk__ptx_words(t, 1);
  wk__ptx_say(t, "%s %%r%d, %%r%d, %lld", op, r, a, (long long)constant);
  return r;
}

int wk__ptx_one(wk__ptx_text *t, const char *op, int a) {
  int r = wk__ptx_words(t, 1);
  wk__ptx_say(t, "%s %%r%d, %%r%d", op, r, a);
  return r;
}

int wk__ptx_special(wk__ptx_text *t, const char *name) {
  int r = wk__ptx_words(t, 1);
  wk__ptx_say(t, "mov.u32 %%r%d, %s", r, name);
  return r;
}

int wk__ptx_arg_word(wk__ptx_text *t, int index) {
  int r = wk__ptx_words(t, 1);
  wk__ptx_say(t, "ld.param.b32 %%r%d, [args+%d]", r, 8 * index);
  return r;
}

int wk__ptx_arg_long(wk__ptx_text *t, int index) {
  int d = wk__ptx_long(t);
  wk__ptx_say(t, "ld.param.b64 %%d%d, [args+%d]", d, 8 * index);
  return d;
}

int wk__ptx_advance(wk__ptx_text *t, int base, int index, int word) {
  int stride = wk__ptx_arg_long(t, index), wide = wk__ptx_long(t), d = wk__ptx_long(t);
  wk__ptx_say(t, "cvt.u64.u32 %%d%d, %%r%d", wide, word);
  wk__ptx_say(t, "mad.lo.s64 %%d%d, %%d%d, %%d%d, %%d%d", d, wide, stride, base);
  return d;
}

unsigned wk__ptx_bits(float f) {
  union {
    float f;
    unsigned bits;
  } u = {f};
  return u.bits;
}

char *wk__ptx_finish(wk__ptx_text *t, const wk__ptx_module *m) {
  wk__string s = {0};
  char *code = wk__string_take(&t->code);
  if (!code) return NULL;
  if (m->warpgroups)
    wk__string_append(&s, ".version 8.0\n.target sm_90a\n.address_size 64\n");
  else if (m->float8)
    wk__string_append(&s, ".version 8.4\n.target sm_89\n.address_size 64\n");
  else
    wk__string_printf(&s, ".version 7.8\n.target sm_%d\n.address_size 64\n", m->capability < 80 ? 70 : 80);
  if (m->tables) wk__string_append(&s, m->tables);
  wk__string_append(&s, ".extern .shared .align 128 .b8 memory[];\n");
  wk__string_printf(&s, ".visible .entry %s(.param .align 64 .b8 args[%d])\n.maxntid %d\n.minnctapersm %d\n{\n",
                    m->entry, 8 * m->args, m->threads, m->blocks);
  wk__string_printf(&s, "\t.reg .b32 %%r<%d>;\n\t.reg .b64 %%d<%d>;\n\t.reg .pred %%p<%d>;\n\t.reg .b16 %%h<%d>;\n",
                    t->words + 1, t->longs + 1, t->predicates + 1, t->halves + 1);
  wk__string_append(&s, code);
  wk__string_append(&s, "}\n");
  wk__free(code);
  return wk__string_take(&s);
}
