/* As much of cuBLASLt as products of bytes ask for, and layers of bf16 and of f32 as TF32, in software, over the
 * emulated driver: it takes what the real one takes on an H100 and refuses the rest, so that descriptions that are
 * wrong give no product. Those of floats have two ways, which give the same. Numbers are those of cublasLt.h 12.9.
 * EMULATED_CUBLASLT_VERSION: below 120900 it has no scales by row. Each product is a line on stderr.
 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct description {
  int compute, scale_type, transposed[2], epilogue, bias_type, scale_mode[2];
  uint64_t bias, scale[2];
  int8_t fast;
} description;
typedef struct layout {
  int type;
  uint64_t rows, columns;
  int64_t leading;
} layout;
enum { NOT_SUPPORTED = 15, INVALID_VALUE = 7 };
enum { F32 = 0, F16 = 2, I8 = 3, I32 = 10, BF16 = 14, E4M3 = 28, E5M2 = 29 };
#define API __attribute__((visibility("default")))

/* The driver's, which the process has loaded. */
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, void *stream);
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, void *stream);
int cuMemHostAlloc(void **bytes_of_it, size_t bytes, unsigned flags);
int cuMemFreeHost(void *bytes);
int cuStreamGetCaptureInfo_v2(void *stream, int *status, unsigned long long *id, void **graph, const void **nodes,
                              size_t *count);
int cuStreamSynchronize(void *stream);

/* It allocates, which the driver refuses, with the capture's end, while the thread captures. */
API int cublasLtCreate(void **out) {
  void *bytes;
  bool may = !cuMemHostAlloc(&bytes, 1, 0) && !cuMemFreeHost(bytes);
  return !may || !(*out = malloc(1));
}
API int cublasLtMatmulDescCreate(void **out, int compute, int scale_type) {
  description *d = calloc(1, sizeof *d);
  if ((*out = d)) *d = (description){.compute = compute, .scale_type = scale_type, .epilogue = 1, .bias_type = -1};
  return !d;
}
API int cublasLtMatmulDescDestroy(void *desc) {
  free(desc);
  return 0;
}
static int version(void) {
  const char *text = getenv("EMULATED_CUBLASLT_VERSION");
  return text ? atoi(text) : 120900;
}
API int cublasLtMatmulDescSetAttribute(void *desc, int attribute, const void *value, size_t bytes) {
  description *d = desc;
  void *at = NULL;
  size_t wanted = 4;
  if (attribute == 3 || attribute == 4) at = &d->transposed[attribute - 3];
  if (attribute == 7) at = &d->epilogue;
  if (attribute == 8) at = &d->bias, wanted = 8;
  if (attribute == 17 || attribute == 18) at = &d->scale[attribute - 17], wanted = 8;
  if (attribute == 25) at = &d->fast, wanted = 1;
  if (attribute == 26) at = &d->bias_type;
  if ((attribute == 31 || attribute == 32) && version() >= 120900) at = &d->scale_mode[attribute - 31];
  if (!at || bytes != wanted) return INVALID_VALUE;
  memcpy(at, value, bytes);
  return 0;
}
API int cublasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  layout *l = calloc(1, sizeof *l);
  if ((*out = l)) *l = (layout){type, rows, columns, leading};
  return !l;
}
API int cublasLtMatrixLayoutDestroy(void *l) {
  free(l);
  return 0;
}
API int cublasLtMatrixLayoutSetAttribute(void *l, int attribute, const void *value, size_t bytes) {
  (void)l, (void)attribute, (void)value, (void)bytes;
  return NOT_SUPPORTED;
}
API int cublasLtMatmulPreferenceCreate(void **out) { return !(*out = malloc(1)); }
API int cublasLtMatmulPreferenceDestroy(void *preference) {
  free(preference);
  return 0;
}
API int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t bytes) {
  (void)preference, (void)value;
  return attribute == 1 && bytes == 8 ? 0 : INVALID_VALUE;
}

/* ---- what it takes ---- */

static bool is_plain(const layout *l) { return l->type == BF16 || l->type == F32; }

static bool takes(const description *d, const layout *a, const layout *b, const layout *c) {
  bool whole = a->type == I8 && b->type == I8 && c->type == I32 && d->compute == 72 && d->scale_type == I32;
  bool small = (a->type == E4M3 || a->type == E5M2) && (b->type == E4M3 || b->type == E5M2) &&
               (a->type == E4M3 || b->type == E4M3) && (c->type == F32 || c->type == F16 || c->type == BF16) &&
               d->compute == 68 && d->scale_type == F32;
  bool plain = is_plain(a) && b->type == a->type && c->type == a->type && d->compute == (a->type == F32 ? 77 : 68) &&
               d->scale_type == F32;
  uint64_t unit = plain ? 1 : whole ? 4 : 16;
  if (!whole && !small && !plain) return false;
  if (d->transposed[0] != 1 || d->transposed[1] != 0 || a->rows != b->rows) return false;
  if (c->rows != a->columns || c->columns != b->columns || c->leading < (int64_t)c->rows) return false;
  if (a->rows % unit || a->columns % unit || (uint64_t)a->leading % unit || (uint64_t)b->leading % unit) return false;
  if (a->leading < (int64_t)a->rows || b->leading < (int64_t)b->rows) return false;
  if (plain) return d->epilogue == 1 || d->epilogue == 4;
  if (d->epilogue == 4) return small && d->bias_type == (c->type == F16 ? F16 : BF16);
  return d->epilogue == 1 && d->scale_mode[0] == d->scale_mode[1];
}

API int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *out, void *preference,
                                       int most, void *results, int *count) {
  (void)handle, (void)preference;
  enum { BYTES = 96 }; /* of a result, which begins with what we like */
  *count = most > 0 && c == out && takes(desc, a, b, out);
  if (*count && most > 1 && is_plain(a)) *count = 2;
  if (*count) memset(results, 0, BYTES * (size_t)*count);
  for (int i = 0; i < *count; i++) ((uint8_t *)results)[BYTES * i] = (uint8_t)i;
  return *count ? 0 : NOT_SUPPORTED;
}

/* ---- the product ---- */

static float from_bf16(uint16_t bits) {
  uint32_t word = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &word, 4);
  return value;
}
static double number(int type, const void *at, uint64_t i) {
  if (type == BF16) return from_bf16(((const uint16_t *)at)[i]);
  if (type == F32) return ((const float *)at)[i];
  const uint8_t byte = ((const uint8_t *)at)[i];
  int exponents = type == E4M3 ? 4 : 5, fractions = 7 - exponents, bias = (1 << (exponents - 1)) - 1;
  if (type == I8) return (int8_t)byte;
  int exponent = (byte & 127) >> fractions, fraction = byte & ((1 << fractions) - 1);
  double value =
      exponent ? ldexp(1 + ldexp(fraction, -fractions), exponent - bias) : ldexp(fraction, 1 - bias - fractions);
  return byte & 128 ? -value : value;
}
static void store(int type, void *to, uint64_t i, double value) {
  if (type == I32) ((int32_t *)to)[i] = (int32_t)value;
  if (type == F32) ((float *)to)[i] = (float)value;
  if (type == F16) ((_Float16 *)to)[i] = (_Float16)(float)value;
  if (type != BF16) return;
  float f = (float)value;
  uint32_t word;
  memcpy(&word, &f, 4);
  ((uint16_t *)to)[i] = (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
}

static uint64_t bytes_of_type(int type) {
  return type == E4M3 || type == E5M2 ? 1 : type == F16 || type == BF16 ? 2 : 4;
}

static void *fetch(void *stream, uint64_t from, size_t bytes) {
  void *copy = from ? malloc(bytes) : NULL;
  if (copy && (cuMemcpyDtoHAsync_v2(copy, from, bytes, stream) || cuStreamSynchronize(stream))) abort();
  return copy;
}

API int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
                       void *b_layout, const void *beta, const void *c, void *c_layout, void *out, void *out_layout,
                       const void *algo, void *workspace, size_t workspace_bytes, void *stream) {
  (void)handle, (void)workspace, (void)workspace_bytes;
  const description *d = desc;
  const layout *la = a_layout, *lb = b_layout, *lc = out_layout;
  bool whole = la->type == I8, plain = is_plain(la), scaled = !whole && !plain, rows = d->scale_mode[0] == 3;
  if (c != out || c_layout != out_layout || !takes(d, la, lb, lc) || (scaled && (!d->scale[0] || !d->scale[1])))
    return INVALID_VALUE;
  if (whole ? *(int32_t *)alpha != 1 || *(int32_t *)beta != 0 : *(float *)alpha != 1 || *(float *)beta != 0)
    return INVALID_VALUE;
  int captured = 0; /* nothing of this could be run again */
  if (cuStreamGetCaptureInfo_v2(stream, &captured, NULL, NULL, NULL, NULL) || captured) return NOT_SUPPORTED;
  if (cuStreamSynchronize(stream)) return INVALID_VALUE;
  uint64_t n = lc->rows, m = lc->columns, size = bytes_of_type(lc->type);
  size_t item = bytes_of_type(whole ? E4M3 : la->type);
  uint8_t *from_a = fetch(stream, (uintptr_t)a, (size_t)la->leading * n * item),
          *from_b = fetch(stream, (uintptr_t)b, (size_t)lb->leading * m * item);
  float *of_a = fetch(stream, d->scale[0], rows ? 4 * n : 4), *of_b = fetch(stream, d->scale[1], rows ? 4 * m : 4);
  uint16_t *bias = d->epilogue == 4 ? fetch(stream, d->bias, 2 * n) : NULL;
  void *result = malloc((size_t)lc->leading * m * size);
  for (uint64_t j = 0; j < m; j++)
    for (uint64_t i = 0; i < n; i++) {
      double sum = 0;
      for (uint64_t k = 0; k < la->rows; k++)
        sum += number(la->type, from_a, i * (uint64_t)la->leading + k) *
               number(lb->type, from_b, j * (uint64_t)lb->leading + k);
      if (scaled) sum *= (double)of_a[rows ? i : 0] * of_b[rows ? j : 0];
      if (bias) sum += lc->type == F16 ? (double)((_Float16 *)bias)[i] : from_bf16(bias[i]);
      store(lc->type, result, j * (uint64_t)lc->leading + i, sum);
    }
  int status = cuMemcpyHtoDAsync_v2((uintptr_t)out, result, (size_t)lc->leading * m * size, stream);
  if (!status) status = cuStreamSynchronize(stream);
  const char *kind = whole ? " int8" : la->type == F32 ? " tf32" : plain ? " bf16" : "";
  const char *way = plain && *(const uint8_t *)algo ? ", second way" : "";
  fprintf(stderr, "cublaslt: %dx%dx%d%s%s%s%s\n", (int)m, (int)n, (int)la->rows, kind, way, rows ? " rows" : "",
          bias ? " bias" : "");
  free(from_a), free(from_b), free(of_a), free(of_b), free(bias), free(result);
  return status;
}
