/* The copy engine and its barriers. In: words, longs, predicates of a text. Out: lines. */
#include "codegen/ptx_bulk.h"

int wk__ptx_bulk_map(wk__ptx_text *t, int arg) {
  int map = wk__ptx_long(t);
  wk__ptx_say(t, "mov.b64 %%d%d, args;\n\tadd.s64 %%d%d, %%d%d, %d;\n\tcvta.param.u64 %%d%d, %%d%d", map, map, map,
              8 * arg, map, map);
  return map;
}

static void guard(wk__ptx_text *t, int predicate) {
  wk__string_append(&t->code, "\t");
  if (predicate >= 0) wk__string_printf(&t->code, "@%%p%d ", predicate);
}

void wk__ptx_bulk_begin(wk__ptx_text *t, int predicate, int barrier, int offset, int count) {
  guard(t, predicate);
  wk__string_printf(&t->code, "mbarrier.init.shared::cta.b64 [%%r%d+%d], %d;\n", barrier, offset, count);
}

void wk__ptx_bulk_expect(wk__ptx_text *t, int predicate, int barrier, int bytes) {
  guard(t, predicate);
  wk__string_printf(&t->code, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%%r%d], %d;\n", barrier, bytes);
}

void wk__ptx_bulk_copy(wk__ptx_text *t, int predicate, const wk__ptx_bulk_box *box, int to, int barrier) {
  wk__string *code = &t->code;
  guard(t, predicate);
  wk__string_printf(code, "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes%s ",
                    box->blocks >= 0 ? ".multicast::cluster" : "");
  wk__string_printf(code, "[%%r%d], [%%d%d, {%%r%d, %%r%d, %%r%d}], [%%r%d]", to, box->map, box->fast, box->slow,
                    box->batch, barrier);
  if (box->blocks >= 0) wk__string_printf(code, ", %%h%d", box->blocks);
  wk__string_append(code, ";\n");
}

void wk__ptx_bulk_wait(wk__ptx_text *t, int barrier, int parity, bool of_cluster) {
  int again = t->labels++, done = wk__ptx_predicate(t);
  wk__ptx_label(t, again);
  wk__ptx_say(t, "mbarrier.try_wait.parity.%sshared::cta.b64 %%p%d, [%%r%d], %%r%d",
              of_cluster ? "acquire.cluster." : "", done, barrier, parity);
  wk__ptx_say(t, "@!%%p%d bra L%d", done, again);
}
