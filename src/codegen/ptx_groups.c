/* Products of warpgroups: descriptions of matrices, and the instruction. In: words, longs, predicates of a text. Out:
 * lines. */
#include "codegen/ptx_groups.h"

/* Address / 16, bytes / 16 from a panel to the next and from 8 lines to the next 8, and how pieces are exchanged. */
int wk__ptx_group_describe(wk__ptx_text *t, int address, int line, int panel) {
  int d = wk__ptx_long(t), r = wk__ptx_with(t, "and.b32", wk__ptx_with(t, "shr.u32", address, 4), 0x3fff);
  uint64_t exchange = line == 128 ? 1 : line == 64 ? 2 : 3;
  uint64_t rest = exchange << 62 | (uint64_t)(8 * line / 16) << 32 | (uint64_t)(panel / 16) << 16;
  wk__ptx_say(t, "cvt.u64.u32 %%d%d, %%r%d", d, r);
  wk__ptx_say(t, "or.b64 %%d%d, %%d%d, 0x%llx", d, d, (unsigned long long)rest);
  return d;
}

int wk__ptx_group_part(wk__ptx_text *t, int description, int bytes) {
  int d = wk__ptx_long(t);
  wk__ptx_say(t, "add.s64 %%d%d, %%d%d, %d", d, description, bytes / 16);
  return d;
}

/* Integers have no signs of factors, and elements of two bytes alone may lie across k. */
static void finish(wk__string *code, const wk__ptx_group_product *p) {
  wk__string_printf(code, "%%p%d", p->adds);
  if (strcmp(p->sum, "s32") != 0) wk__string_append(code, ", 1, 1");
  if (p->depth == 16 && p->a >= 0) wk__string_printf(code, ", %d", p->a_across);
  if (p->depth == 16) wk__string_printf(code, ", %d", p->b_across);
  wk__string_append(code, ";\n");
}

void wk__ptx_group_multiply(wk__ptx_text *t, const wk__ptx_group_product *p) {
  wk__string *code = &t->code;
  wk__string_printf(code, "\twgmma.mma_async.sync.aligned.m64n%dk%d.%s.%s.%s {", p->columns, p->depth, p->sum, p->left,
                    p->right);
  for (int c = 0; c < p->columns / 2; c++) wk__string_printf(code, "%s%%r%d", c ? ", " : "", p->sums + c);
  if (p->a >= 0)
    wk__string_printf(code, "}, %%d%d, ", p->a);
  else
    wk__string_printf(code, "}, {%%r%d, %%r%d, %%r%d, %%r%d}, ", p->fragments, p->fragments + 1, p->fragments + 2,
                      p->fragments + 3);
  wk__string_printf(code, "%%d%d, ", p->b);
  finish(code, p);
}
