/* cpu/quant: products must equal, bit for bit, what quant.h promises, at every CPU level of the machine, with and
 * without instructions for bytes, and for 1 to 3 threads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "cpu/gemm/gemm.h"
#include "cpu/gemm/gemm_bf16.h"
#include "cpu/quant/quant.h"
#include "cpu/quant/quant_kernels.h"
#include "tensor/tensor.h"

static uint64_t random_state = 1;
static uint64_t random_bits(void) { /* splitmix64 */
  uint64_t z = random_state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}
static uint8_t *random_bytes(int64_t n) {
  uint8_t *p = malloc((size_t)n + 1);
  for (int64_t i = 0; i < n; i++) p[i] = (uint8_t)random_bits();
  return p;
}
static float *random_floats(int64_t n) {
  float *p = malloc((size_t)(n + 1) * sizeof *p);
  for (int64_t i = 0; i < n; i++) p[i] = (float)((double)(int64_t)random_bits() * 0x1p-63);
  return p;
}

/* Runs `check` at every level, with and without VNNI. */
static void at_each_level(void (*check)(void)) {
  wk__cpu_level top = wk__cpu_level_get();
  for (int level = 0; level <= (int)wk__cpu_level_max(); level++) {
    assert_int_equal(wk__cpu_level_set((wk__cpu_level)level), WK_OK);
    for (int without = 0; without < 2; without++) {
      wk__quant_without_vnni = without;
      random_state = 1;
      check();
    }
  }
  wk__quant_without_vnni = false;
  assert_int_equal(wk__cpu_level_set(top), WK_OK);
}

/* ---- integers ---- */

static void check_integers(int64_t m, int64_t n, int64_t k, uint8_t flip, int32_t shift) {
  uint8_t *a = random_bytes(m * k), *b = random_bytes(n * k);
  int32_t *c = malloc((size_t)(m * n + 1) * sizeof *c);
  wk__quant_integers(&(wk__quant_bytes){m, n, k, a, (int8_t *)b, flip, shift, .c = c});
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < n; j++) {
      int64_t sum = 0;
      for (int64_t p = 0; p < k; p++) sum += ((int64_t)(a[i * k + p] ^ flip) - shift) * (int8_t)b[j * k + p];
      if (c[i * n + j] != (int32_t)sum) fail_msg("(%ld, %ld) of %ld x %ld x %ld", i, j, m, n, k);
    }
  free(a), free(b), free(c);
}
static void check_all_integers(void) {
  static const int64_t sizes[] = {1, 2, 3, 4, 5, 7, 15, 16, 17, 33, 64, 100};
  for (size_t i = 0; i < WK_COUNT(sizes); i++) {
    check_integers(sizes[i], 9, 70, 128, 128);
    check_integers(5, sizes[i], 129, 0, 0);
    check_integers(6, 5, sizes[i], 128, 128 - 17);
  }
  check_integers(70, 300, 512, 0, 131);
  check_integers(1, 4, 0, 128, 128);
}
static void integers_are_exact(void **state) {
  (void)state;
  at_each_level(check_all_integers);
}

/* ---- convolutions ---- */

/* Of images of 6 by 7 bytes with taps (3, 2), padding 1: the sum that channel `out` has at (y, x). */
static int32_t promised_sum(const wk__quant_conv *c, int64_t n, int64_t at_y, int64_t at_x, int64_t channel) {
  int64_t sum = 0, all = c->groups * c->in_channels, group = channel / c->out_channels;
  for (int64_t i = 0; i < c->kernel[1]; i++)
    for (int64_t j = 0; j < c->kernel[2]; j++)
      for (int64_t p = 0; p < c->in_channels; p++) {
        int64_t y = at_y * c->stride[1] + i - c->padding[1], x = at_x * c->stride[2] + j - c->padding[2];
        if (y < 0 || x < 0 || y >= c->in[1] || x >= c->in[2]) continue;
        int64_t image = n * c->in[1] * c->in[2] * all;
        uint8_t byte =
            c->x[image + (y * c->in[2] + x) * c->x_place_step + (group * c->in_channels + p) * c->x_channel_step];
        int64_t tap = i * c->kernel[2] + j;
        int64_t w =
            c->w[channel * c->kernel[1] * c->kernel[2] * c->in_channels + tap * c->w_tap_step + p * c->w_channel_step];
        sum += ((int64_t)(byte ^ c->flip) - c->shift) * w;
      }
  return (int32_t)sum;
}
static void check_layout(int64_t groups, int64_t in, int64_t out, int64_t stride, uint8_t flip, int zero, bool last) {
  wk__quant_conv c = {.batch = 2, .groups = groups, .in_channels = in, .out_channels = out, .in = {1, 6, 7}};
  int64_t kernel[] = {1, 3, 2}, padding[] = {0, 1, 1};
  for (int d = 0; d < WK__QUANT_CONV_DIMS; d++) {
    c.kernel[d] = kernel[d], c.padding[d] = padding[d], c.dilation[d] = 1, c.stride[d] = d ? stride : 1;
    c.out[d] = (c.in[d] + 2 * padding[d] - kernel[d]) / c.stride[d] + 1;
  }
  int64_t channels = groups * out, places = c.out[1] * c.out[2];
  float *scales = random_floats(channels), *bias = random_floats(channels);
  float *y = malloc((size_t)(c.batch * channels * places) * sizeof *y);
  uint8_t *x = random_bytes(c.batch * 6 * 7 * groups * in), *w = random_bytes(channels * 6 * in);
  c.x = x, c.w = (const int8_t *)w, c.flip = flip, c.shift = flip + zero, c.outside = (uint8_t)zero;
  c.x_place_step = last ? groups * in : 1, c.x_channel_step = last ? 1 : 6 * 7;
  c.w_tap_step = last ? in : 1, c.w_channel_step = last ? 1 : 6;
  c.scale = 0.3f, c.scales = scales, c.bias = bias, c.y = y;
  c.place_step = last ? channels : 1, c.channel_step = last ? 1 : places;
  assert_int_equal(wk__quant_convolve(&c), WK_OK);
  for (int64_t i = 0; i < c.batch * channels * places; i++) {
    int64_t place = last ? i / channels % places : i % places, channel = last ? i % channels : i / places % channels;
    int32_t sum = promised_sum(&c, i / places / channels, place / c.out[2], place % c.out[2], channel);
    float wanted = (float)sum * c.scale * scales[channel] + bias[channel];
    if (memcmp(&wanted, &y[i], sizeof wanted) != 0) fail_msg("%ld of %ld groups, %ld to %ld", i, groups, in, out);
  }
  free(scales), free(bias), free(y), free(x), free(w);
}
static void check_convolution(int64_t groups, int64_t in, int64_t out, int64_t stride, uint8_t flip, int zero) {
  check_layout(groups, in, out, stride, flip, zero, false);
  check_layout(groups, in, out, stride, flip, zero, true);
}
static void check_convolutions(void) {
  check_convolution(1, 3, 5, 1, 0, 131);
  check_convolution(1, 21, 6, 2, 128, -7);
  check_convolution(3, 4, 3, 1, 128, 127);
  check_convolution(75, 1, 1, 1, 0, 9);
  check_convolution(33, 1, 1, 2, 128, -128);
  check_convolution(1, 24, 19, 3, 0, 255);
  check_convolution(2, 8, 9, 1, 128, 0);
}
static void convolutions_are_exact(void **state) {
  (void)state;
  at_each_level(check_convolutions);
}

/* ---- floats ---- */

static float fold(float *lanes) {
  for (int width = 16; width; width /= 2)
    for (int i = 0; i < width; i++) lanes[i] += lanes[i + width];
  return lanes[0];
}
static float in_lanes(const float *x, const float *w, int64_t k) {
  float lanes[32] = {0};
  for (int64_t p = 0; p < (k + 31) / 32 * 32; p++)
    lanes[p % 32] = fmaf(p < k ? x[p] : 0, p < k ? w[p] : 0, lanes[p % 32]);
  return fold(lanes);
}

static void check_row(const wk__packed_weight *w, int64_t m,
                      float (*promised)(const wk__packed_weight *, int64_t, const float *)) {
  float *x = random_floats(m * w->k), *bias = random_floats(w->n), *y = random_floats(m * w->n);
  assert_int_equal(wk__quant_weights(w, m, x, bias, y), WK_OK);
  float *met = x; /* what the weight meets */
  for (int64_t p = 0; w->format == WK__QUANT_BF16 && p < m * w->k; p++) met[p] = wk__bf16_to_f32(wk__f32_to_bf16(x[p]));
  for (int64_t i = 0; i < m; i++)
    for (int64_t j = 0; j < w->n; j++) {
      float wanted = promised(w, j, met + i * w->k) + bias[j];
      if (memcmp(&wanted, &y[i * w->n + j], 4) != 0)
        fail_msg("format %d, (%ld, %ld): %a, not %a", w->format, i, j, (double)y[i * w->n + j], (double)wanted);
    }
  free(x), free(bias), free(y);
}

static float promised_int8(const wk__packed_weight *w, int64_t row, const float *x) {
  float *values = malloc((size_t)w->k * sizeof *values);
  for (int64_t p = 0; p < w->k; p++) values[p] = ((const int8_t *)w->data)[row * w->k + p];
  float y = in_lanes(x, values, w->k) * w->scales[row];
  free(values);
  return y;
}
static void check_int8(void) {
  static const int64_t depths[] = {1, 31, 32, 33, 100, 256, 700};
  for (size_t i = 0; i < WK_COUNT(depths); i++) {
    int64_t n = 7, k = depths[i];
    uint8_t *data = random_bytes(n * k);
    float *scales = random_floats(n);
    check_row(&(wk__packed_weight){WK__QUANT_INT8, n, k, data, scales, 0}, 3, promised_int8);
    free(data), free(scales);
  }
}
static void int8_keeps_the_order(void **state) {
  (void)state;
  at_each_level(check_int8);
}

static const int32_t *unpacked; /* (n, k), of the weight that promised_int4 looks at */
static float promised_int4(const wk__packed_weight *w, int64_t row, const float *x) {
  float y = 0;
  for (int64_t g = 0; g < w->k / w->group; g++) {
    float chain = 0, sum = 0;
    for (int64_t p = g * w->group; p < (g + 1) * w->group; p++) {
      chain = fmaf(x[p], (float)(unpacked[row * w->k + p] - 8), chain);
      sum += x[p];
    }
    const float *pair = w->scales + (g * w->n + row) * 2;
    y = fmaf(sum, pair[1], fmaf(pair[0], chain, y));
  }
  return y;
}
static void check_int4(void) {
  for (int64_t n = 16; n <= 144; n += 32) {
    int64_t k = 256, group = n % 64 == 16 ? 32 : 128;
    int32_t *q = malloc((size_t)(n * k) * sizeof *q);
    for (int64_t i = 0; i < n * k; i++) q[i] = (int32_t)(random_bits() & 15);
    uint8_t *data = malloc((size_t)(n * k / 2));
    float *scales = random_floats(k / group * n * 2);
    wk__int4_pack(q, n, k, data);
    unpacked = q;
    wk__packed_weight w = {WK__QUANT_INT4, n, k, data, scales, group};
    check_row(&w, 2, promised_int4);
    float *decoded = malloc((size_t)(n * k) * sizeof *decoded);
    wk__quant_decode(&w, 0, 0, n, k, decoded, k);
    for (int64_t i = 0; i < n * k; i++) {
      const float *pair = scales + (i % k / group * n + i / k) * 2;
      assert_true(decoded[i] == (float)(q[i] - 8) * pair[0] + pair[1]);
    }
    free(q), free(data), free(scales), free(decoded);
  }
}
static void int4_keeps_the_order(void **state) {
  (void)state;
  at_each_level(check_int4);
}

static float promised_blocks(const wk__packed_weight *w, int64_t row, const float *x) {
  float *values = malloc((size_t)w->k * sizeof *values);
  wk__quant_decode(w, row, 0, 1, w->k, values, w->k);
  float y = in_lanes(x, values, w->k);
  free(values);
  return y;
}
/* Random bytes, with scales (the blocks' first and last halves) that are no infinities. */
static uint8_t *random_blocks(wk__quant_format format, int64_t count) {
  int size = wk__block_sizes[format].bytes;
  uint8_t *data = random_bytes(count * size);
  for (int64_t i = 1; format == WK__QUANT_BF16 && i < count * size; i += 2) data[i] = 0x3c | (data[i] & 0x83);
  for (int64_t b = 0; b < count; b++)
    for (int h = 0; h < 2; h++) {
      uint16_t half = wk__f32_to_f16((float)(random_bits() % 64) / 512);
      memcpy(data + b * size + (h ? size - 2 : 0), &half, 2);
      if (format == WK__QUANT_Q4_K || format == WK__QUANT_Q5_K) memcpy(data + b * size + 2, &half, 2);
    }
  return data;
}
static void check_blocks(void) {
  for (int f = WK__QUANT_Q4_0; f < WK__QUANT_FORMATS; f++) {
    int64_t n = 5, k = 512;
    uint8_t *data = random_blocks((wk__quant_format)f, n * k / wk__block_sizes[f].elements);
    wk__packed_weight w = {(wk__quant_format)f, n, k, data, NULL, 0};
    check_row(&w, 2, promised_blocks);
    float whole[512], part[100]; /* a part of a row is the same numbers */
    wk__quant_decode(&w, 3, 0, 1, k, whole, k);
    wk__quant_decode(&w, 3, 250, 1, 100, part, 100);
    assert_memory_equal(part, whole + 250, sizeof part);
    free(data);
  }
}
/* Every number of rows that is read as it lies, and of columns beside a whole step. */
static void check_bf16(void) {
  for (int64_t m = 1; m <= WK__BF16_FEW_ROWS; m++) {
    int64_t n = 1 + m % 5, k = m % 2 ? 96 : 32;
    uint8_t *data = random_blocks(WK__QUANT_BF16, n * k / 32);
    check_row(&(wk__packed_weight){WK__QUANT_BF16, n, k, data, NULL, 0}, m, promised_blocks);
    free(data);
  }
}
/* More rows: chains of the GEMM, on a CPU that multiplies pairs as on one that does not. */
static float promised_chains(const wk__packed_weight *w, int64_t row, const float *x) {
  const uint16_t *values = (const uint16_t *)w->data + row * w->k;
  float y = 0;
  for (int64_t k = 0; k < w->k; k += WK__GEMM_K_BLOCK) {
    float chain = 0;
    for (int64_t p = k; p < wk__min(k + WK__GEMM_K_BLOCK, w->k); p++)
      chain = fmaf(x[p], wk__bf16_to_f32(values[p]), chain);
    y += chain;
  }
  return y;
}
static void check_many_bf16(void) {
  for (int64_t m = WK__BF16_FEW_ROWS + 1; m < 60; m += 7) {
    int64_t n = 1 + m % 40, k = m % 2 ? 96 : 800;
    uint8_t *data = random_blocks(WK__QUANT_BF16, n * k / 32);
    check_row(&(wk__packed_weight){WK__QUANT_BF16, n, k, data, NULL, 0}, m, promised_chains);
    free(data);
  }
}
static void many_rows_of_bf16_are_chains(void **state) {
  (void)state;
  for (int without = 0; without < 2; without++) {
    wk__gemm_without_pairs = without;
    at_each_level(check_many_bf16);
  }
  wk__gemm_without_pairs = false;
}

static void blocks_keep_the_order(void **state) {
  (void)state;
  at_each_level(check_bf16);
  at_each_level(check_blocks);
}

/* Q6_K by its definition: q = low four bits | high two bits << 4, less 32. */
static void a_block_of_q6_k_is_read_as_defined(void **state) {
  (void)state;
  uint8_t *b = random_blocks(WK__QUANT_Q6_K, 1);
  wk__packed_weight w = {WK__QUANT_Q6_K, 1, 256, b, NULL, 0};
  float y[256];
  wk__quant_decode(&w, 0, 0, 1, 256, y, 256);
  uint16_t half;
  memcpy(&half, b + 208, 2);
  for (int e = 0; e < 256; e++) {
    int side = e / 128, quarter = e % 128 / 32, i = e % 32;
    int low = b[side * 64 + quarter % 2 * 32 + i] >> (quarter / 2 * 4) & 15;
    int high = b[128 + side * 32 + i] >> (2 * quarter) & 3;
    float scale = wk__f16_to_f32(half) * (float)(int8_t)b[192 + side * 8 + quarter * 2 + i / 16];
    assert_true(y[e] == scale * (float)((low | high << 4) - 32));
  }
  free(b);
}

/* ---- rows as bytes ---- */

static void rows_become_bytes(void **state) {
  (void)state;
  float x[] = {-1.0f, 0.5f, 0.25f, 1.0f};
  int8_t q[4];
  assert_true(wk__quant_row(x, 4, q) == 1.0f / 127);
  assert_int_equal(q[0], -127);
  assert_int_equal(q[1], 64); /* 63.5, to even */
  assert_int_equal(q[3], 127);
  float zeros[2] = {0};
  assert_true(wk__quant_row(zeros, 2, q) == 1e-5f / 127);
  assert_int_equal(q[0], 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(integers_are_exact),           cmocka_unit_test(convolutions_are_exact),
      cmocka_unit_test(int8_keeps_the_order),         cmocka_unit_test(int4_keeps_the_order),
      cmocka_unit_test(blocks_keep_the_order),        cmocka_unit_test(a_block_of_q6_k_is_read_as_defined),
      cmocka_unit_test(many_rows_of_bf16_are_chains), cmocka_unit_test(rows_become_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
