/* Additions whose sums are the same in any order (codegen/exact_sums.h): what a place gets in the two runs of a nest.
 * Tests: tests/cuda/test_deterministic.py. */
#include <stdio.h>

#include "codegen/exact_sums.h"
#include "codegen/ptx_internal.h"

/* How a float is seen: as bits of a word, of which the mantissa's are the lower ones. */
typedef struct float_form {
  int mantissa, infinite, bias; /* of exponent e are numbers below 2^(e - bias) */
  bool is_double;
} float_form;

static float_form form_of(int dtype) {
  return dtype == WK_FLOAT64 ? (float_form){20, 2047, 1022, true} : (float_form){23, 255, 126, false};
}

static reg_name line_of(ptx_writer *w, const char *type, const char *op, const char *a, const char *b) {
  reg_name out = ptx_new(w, type);
  ptx_line(w, "%s %s, %s, %s;", op, out.text, a, b);
  return out;
}

/* Memory of `bytes` a place that belongs to the element of `item` bytes at an address. */
static reg_name beside(ptx_writer *w, int kind, int access, int item, int bytes, const char *address, int offset) {
  reg_name from = ptx_load_arg(w, WK__PTX_PLACES, access, 0), base = ptx_load_arg(w, kind, access, 0),
           at = line_of(w, "b64", "sub.s64", address, from.text);
  char number[24];
  if (offset) {
    (void)snprintf(number, sizeof number, "%d", offset);
    at = line_of(w, "b64", "add.s64", at.text, number);
  }
  for (; item < bytes; item *= 2) at = line_of(w, "b64", "shl.b64", at.text, "1");
  for (; item > bytes; item /= 2) at = line_of(w, "b64", "shr.u64", at.text, "1");
  return line_of(w, "b64", "add.s64", at.text, base.text);
}

/* Of a double the upper word, whose lowest bit is set where the lower one is not zero: a NaN is above infinity. */
static reg_name magnitude(ptx_writer *w, const char *value, bool is_double) {
  reg_name bits = ptx_new(w, "b32");
  if (!is_double) {
    ptx_line(w, "mov.b32 %s, %s;", bits.text, value);
    return line_of(w, "b32", "and.b32", bits.text, "0x7fffffff");
  }
  reg_name low = ptx_new(w, "b32"), some = ptx_new(w, "pred"), one = ptx_new(w, "b32");
  ptx_line(w, "mov.b64 {%s, %s}, %s;", low.text, bits.text, value);
  ptx_line(w, "setp.ne.u32 %s, %s, 0;", some.text, low.text);
  ptx_line(w, "selp.b32 %s, 1, 0, %s;", one.text, some.text);
  bits = line_of(w, "b32", "and.b32", bits.text, "0x7fffffff");
  return line_of(w, "b32", "or.b32", bits.text, one.text);
}

/* 2^e of a 64-bit register. */
static reg_name power(ptx_writer *w, const char *e) {
  reg_name biased = line_of(w, "b64", "add.s64", e, "1023"), bits = line_of(w, "b64", "shl.b64", biased.text, "52"),
           out = ptx_new(w, "f64");
  ptx_line(w, "mov.b64 %s, %s;", out.text, bits.text);
  return out;
}

static reg_name scaled(ptx_writer *w, const char *x, const char *e) {
  reg_name half = line_of(w, "b64", "shr.s64", e, "1"), rest = line_of(w, "b64", "sub.s64", e, half.text),
           first = power(w, half.text), second = power(w, rest.text),
           out = line_of(w, "f64", "mul.rn.f64", x, first.text);
  return line_of(w, "f64", "mul.rn.f64", out.text, second.text);
}

static reg_name whole(ptx_writer *w, const char *x) {
  reg_name out = ptx_new(w, "b64");
  ptx_line(w, "cvt.rni.s64.f64 %s, %s;", out.text, x);
  return out;
}

/* What a number counts as where not all are finite: 1, or, below zero, 1 in the upper half; a finite one 0. */
static reg_name counted(ptx_writer *w, const char *x) {
  reg_name out = ptx_new(w, "b64"), is = ptx_new(w, "pred");
  ptx_line(w, "setp.eq.f64 %s, %s, 0d7FF0000000000000;", is.text, x);
  ptx_line(w, "selp.b64 %s, 1, 0, %s;", out.text, is.text);
  ptx_line(w, "setp.eq.f64 %s, %s, 0dFFF0000000000000;", is.text, x);
  ptx_line(w, "selp.b64 %s, %lld, %s, %s;", out.text, 1LL << WK__EXACT_NEGATIVE_SHIFT, out.text, is.text);
  return out;
}

static reg_name as_double(ptx_writer *w, const char *value, bool is_double) {
  reg_name out = ptx_new(w, "f64");
  ptx_line(w, is_double ? "mov.f64 %s, %s;" : "cvt.f64.f32 %s, %s;", out.text, value);
  return out;
}

/* A double's rest below the unit, in units of 2^-bits of it, into the second sum. */
static void add_rest(ptx_writer *w, const char *x, const char *units, const char *bits, const char *sum,
                     const char *special, const char *guard) {
  reg_name taken = ptx_new(w, "f64");
  ptx_line(w, "cvt.rn.f64.s64 %s, %s;", taken.text, units);
  reg_name rest = line_of(w, "f64", "sub.rn.f64", x, taken.text), below = scaled(w, rest.text, bits),
           number = whole(w, below.text);
  ptx_line(w, "selp.b64 %s, 0, %s, %s;", number.text, number.text, special);
  ptx_line(w, "%sred.global.add.u64 [%s+8], %s;", guard, sum, number.text);
}

static void add_units(ptx_writer *w, const float_form *f, const char *value, const char *largest, const char *sum,
                      const char *guard) {
  char infinite[24], bias[24], mantissa[24];
  (void)snprintf(infinite, sizeof infinite, "%u", (unsigned)f->infinite << f->mantissa);
  (void)snprintf(bias, sizeof bias, "%d", f->bias);
  (void)snprintf(mantissa, sizeof mantissa, "%d", f->mantissa);
  reg_name most = ptx_new(w, "b32"), special = ptx_new(w, "pred"), exponent = ptx_new(w, "b64"),
           bits = ptx_load_arg(w, WK__PTX_BITS, 0, 0), x = as_double(w, value, f->is_double);
  ptx_line(w, "mov.b32 %s, 0;", most.text);
  ptx_line(w, "%sld.global.u32 %s, [%s];", guard, most.text, largest);
  ptx_line(w, "setp.ge.u32 %s, %s, %s;", special.text, most.text, infinite);
  most = line_of(w, "b32", "shr.u32", most.text, mantissa);
  most = line_of(w, "b32", "max.u32", most.text, "1");
  ptx_line(w, "cvt.u64.u32 %s, %s;", exponent.text, most.text);
  reg_name e = line_of(w, "b64", "sub.s64", bits.text, exponent.text);
  e = line_of(w, "b64", "add.s64", e.text, bias);
  reg_name scaled_x = scaled(w, x.text, e.text), units = whole(w, scaled_x.text), count = counted(w, x.text),
           given = ptx_new(w, "b64");
  ptx_line(w, "selp.b64 %s, %s, %s, %s;", given.text, count.text, units.text, special.text);
  ptx_line(w, "%sred.global.add.u64 [%s], %s;", guard, sum, given.text);
  if (f->is_double) add_rest(w, scaled_x.text, units.text, bits.text, sum, special.text, guard);
}

void ptx_add_exactly(ptx_writer *w, int access, int dtype, const char *value, const char *address, int offset,
                     const char *guard) {
  float_form f = form_of(dtype);
  int item = (int)wk__dtypes[dtype].size;
  reg_name largest = beside(w, WK__PTX_LARGEST, access, item, 4, address, offset);
  if (w->shape->adds == WK__PTX_LARGEST_ADDED) {
    reg_name bits = magnitude(w, value, f.is_double);
    ptx_line(w, "%sred.global.max.u32 [%s], %s;", guard, largest.text, bits.text);
    return;
  }
  reg_name sum = beside(w, WK__PTX_SUMS, access, item, f.is_double ? 16 : 8, address, offset);
  add_units(w, &f, value, largest.text, sum.text, guard);
}
