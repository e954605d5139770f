/* Kernels of ptx/, as a compiler makes them, against plain C. */
#include <math.h>

#include "common.h"

static float random_float(void) { return (float)((double)(random_bits() >> 11) * 0x1p-53 * 2 - 1); }

static void saxpy(void **state) {
  enum { N = 5000 };
  static float x[N], y[N], got[N];
  (void)state;
  begin();
  CUmodule module = load_file("kernels.ptx");
  for (int i = 0; i < N; i++) x[i] = random_float(), y[i] = random_float();
  uint64_t dx = device_memory(sizeof x), dy = device_memory(sizeof y);
  int n = N;
  float a = 1.7f;
  upload(dx, x, sizeof x), upload(dy, y, sizeof y);
  OK(launch(function_of(module, "saxpy"), (N + 127) / 128, 128, 0, (void *[]){&n, &a, &dx, &dy}));
  download(got, dy, sizeof got);
  for (int i = 0; i < N; i++) assert_true(got[i] == fmaf(a, x[i], y[i]));
  device_free(dx, sizeof x), device_free(dy, sizeof y);
  OK(cuModuleUnload(module));
}

static void block_sum(void **state) {
  enum { N = 10000 };
  static float x[N];
  (void)state;
  begin();
  CUmodule module = load_file("kernels.ptx");
  float expected = 0, got;
  for (int i = 0; i < N; i++) x[i] = (float)(random_bits() % 100), expected += x[i]; /* exact in any order */
  uint64_t dx = device_memory(sizeof x), out = device_memory(4);
  int n = N;
  upload(dx, x, sizeof x);
  OK(cuMemsetD8Async(out, 0, 4, NULL));
  OK(launch(function_of(module, "block_sum"), 5, 256, 0, (void *[]){&dx, &out, &n}));
  download(&got, out, 4);
  assert_true(got == expected);
  device_free(dx, sizeof x), device_free(out, 4);
  OK(cuModuleUnload(module));
}

static void softmax_rows(void **state) {
  enum { ROWS = 7, COLUMNS = 300 };
  static float x[ROWS][COLUMNS], y[ROWS][COLUMNS];
  (void)state;
  begin();
  CUmodule module = load_file("kernels.ptx");
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) x[r][c] = 10 * random_float();
  uint64_t dx = device_memory(sizeof x), dy = device_memory(sizeof y);
  int columns = COLUMNS;
  upload(dx, x, sizeof x);
  OK(launch(function_of(module, "softmax_rows"), ROWS, 128, COLUMNS * 4, (void *[]){&dx, &dy, &columns}));
  download(y, dy, sizeof y);
  for (int r = 0; r < ROWS; r++) {
    double most = -1e9, sum = 0;
    for (int c = 0; c < COLUMNS; c++) most = fmax(most, x[r][c]);
    for (int c = 0; c < COLUMNS; c++) sum += exp(x[r][c] - most);
    for (int c = 0; c < COLUMNS; c++) assert_true(fabs(y[r][c] - exp(x[r][c] - most) / sum) < 1e-6);
  }
  device_free(dx, sizeof x), device_free(dy, sizeof y);
  OK(cuModuleUnload(module));
}

static void scan(void **state) {
  enum { N = 1000 };
  static int x[N], y[N];
  (void)state;
  begin();
  CUmodule module = load_file("kernels.ptx");
  for (int i = 0; i < N; i++) x[i] = (int)(random_bits() % 1000) - 500;
  uint64_t dx = device_memory(sizeof x), dy = device_memory(sizeof y);
  int n = N, sum = 0;
  upload(dx, x, sizeof x);
  OK(launch(function_of(module, "scan"), 1, 1024, 0, (void *[]){&dx, &dy, &n}));
  download(y, dy, sizeof y);
  for (int i = 0; i < N; i++) assert_int_equal(y[i], sum += x[i]);
  device_free(dx, sizeof x), device_free(dy, sizeof y);
  OK(cuModuleUnload(module));
}

static void histogram(void **state) {
  enum { N = 20000 };
  static uint8_t x[N];
  static uint32_t expected[256], got[256];
  (void)state;
  begin();
  CUmodule module = load_file("kernels.ptx");
  memset(expected, 0, sizeof expected);
  for (int i = 0; i < N; i++) expected[x[i] = (uint8_t)(random_bits() & random_bits())]++;
  uint64_t dx = device_memory(sizeof x), counts = device_memory(sizeof got);
  int n = N;
  upload(dx, x, sizeof x);
  OK(cuMemsetD8Async(counts, 0, sizeof got, NULL));
  OK(launch(function_of(module, "histogram"), 6, 192, 0, (void *[]){&dx, &counts, &n}));
  download(got, counts, sizeof got);
  assert_memory_equal(got, expected, sizeof got);
  device_free(dx, sizeof x), device_free(counts, sizeof got);
  OK(cuModuleUnload(module));
}

/* The values are whole numbers so small that both halves hold all results. */
static void halves(void **state) {
  enum { N = 64 };
  static float x[N], back[N];
  (void)state;
  begin();
  CUmodule module = load_file("kernels.ptx");
  for (int i = 0; i < N; i++) x[i] = (float)(i - N / 2);
  uint64_t dx = device_memory(sizeof x), h = device_memory(2 * N), b = device_memory(2 * N),
           dy = device_memory(sizeof back);
  int n = N;
  upload(dx, x, sizeof x);
  OK(launch(function_of(module, "halves"), 1, N, 0, (void *[]){&dx, &h, &b, &dy, &n}));
  download(back, dy, sizeof back);
  for (int i = 0; i < N; i++) assert_true(back[i] == 3 * x[i] + (x[i] + 0.5f));
  device_free(dx, sizeof x), device_free(h, 2 * N), device_free(b, 2 * N), device_free(dy, sizeof back);
  OK(cuModuleUnload(module));
}

static int switched(int v, int y) {
  switch (v) {
    case 0:
      return y + 7;
    case 1:
      return y * 3;
    case 2:
      return y - v;
    case 3:
      return y ^ 77;
    case 4:
      return y / 5;
    case 5:
      return y % 6;
    case 6:
      return ~y;
    case 7:
      return y * 8;
    case 8:
      return y >> 2;
    default:
      return -1;
  }
}

static void switches(void **state) {
  enum { N = 500 };
  static int x[N], y[N], got[N];
  static const char *const files[] = {"kernels.ptx", "jump_table.ptx"};
  (void)state;
  begin();
  for (size_t f = 0; f < COUNT(files); f++) {
    CUmodule module = load_file(files[f]);
    for (int i = 0; i < N; i++) x[i] = (int)(random_bits() % 10), y[i] = (int)(random_bits() % 20001) - 10000;
    uint64_t dx = device_memory(sizeof x), dy = device_memory(sizeof y);
    int n = N;
    upload(dx, x, sizeof x), upload(dy, y, sizeof y);
    OK(launch(function_of(module, "switches"), 4, 128, 0, (void *[]){&dx, &dy, &n}));
    download(got, dy, sizeof got);
    for (int i = 0; i < N; i++) assert_int_equal(got[i], switched(x[i], y[i]));
    device_free(dx, sizeof x), device_free(dy, sizeof y);
    OK(cuModuleUnload(module));
  }
}

static void divide(void **state) {
  enum { N = 1000 };
  static int64_t a[N], b[N], quotients[N];
  static uint64_t rests[N];
  (void)state;
  begin();
  CUmodule module = load_file("kernels.ptx");
  for (int i = 0; i < N; i++) {
    a[i] = (int64_t)random_bits() >> random_bits() % 63, b[i] = (int64_t)random_bits() >> random_bits() % 63;
    if (!b[i]) b[i] = 3;
  }
  uint64_t da = device_memory(sizeof a), db = device_memory(sizeof b), dq = device_memory(sizeof a),
           dr = device_memory(sizeof b);
  int n = N;
  upload(da, a, sizeof a), upload(db, b, sizeof b);
  OK(launch(function_of(module, "divide"), 8, 128, 0, (void *[]){&da, &db, &dq, &dr, &n}));
  download(quotients, dq, sizeof quotients), download(rests, dr, sizeof rests);
  for (int i = 0; i < N; i++) {
    assert_true(quotients[i] == a[i] / b[i]);
    assert_true(rests[i] == (uint64_t)a[i] % (uint64_t)b[i]);
  }
  device_free(da, sizeof a), device_free(db, sizeof b), device_free(dq, sizeof a), device_free(dr, sizeof b);
  OK(cuModuleUnload(module));
}

static void transpose(void **state) {
  enum { ROWS = 100, COLUMNS = 70 };
  static float x[ROWS][COLUMNS], y[COLUMNS][ROWS];
  (void)state;
  begin();
  CUmodule module = load_file("kernels.ptx");
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) x[r][c] = random_float();
  uint64_t dx = device_memory(sizeof x), dy = device_memory(sizeof y);
  int rows = ROWS, columns = COLUMNS;
  upload(dx, x, sizeof x);
  OK(cuLaunchKernel(function_of(module, "transpose"), (COLUMNS + 31) / 32, (ROWS + 31) / 32, 1, 32, 8, 1, 0, NULL,
                    (void *[]){&dx, &dy, &rows, &columns}, NULL));
  download(y, dy, sizeof y);
  for (int r = 0; r < ROWS; r++)
    for (int c = 0; c < COLUMNS; c++) assert_true(y[c][r] == x[r][c]);
  device_free(dx, sizeof x), device_free(dy, sizeof y);
  OK(cuModuleUnload(module));
}

/* Functions that call themselves, local arrays, constants, and a variable that the host reads. */
static void calls(void **state) {
  enum { N = 64 };
  static float x[N], y[N];
  (void)state;
  begin();
  CUmodule module = load_file("kernels.ptx");
  for (int i = 0; i < N; i++) x[i] = random_float();
  uint64_t dx = device_memory(sizeof x), dy = device_memory(sizeof y);
  int n = N, visits;
  upload(dx, x, sizeof x);
  OK(launch(function_of(module, "calls"), 1, N, 0, (void *[]){&dx, &dy, &n}));
  download(y, dy, sizeof y);
  for (int i = 0; i < N; i++) {
    double v = x[(i + i % 8) % N], expected = ((0.5 * v - 1) * v + 2) * v + 0.25 + sin((double)(x[i] * 1000.0f));
    assert_true(fabs(y[i] - expected) < 1e-5);
  }
  CUdeviceptr address;
  size_t bytes;
  OK(cuModuleGetGlobal_v2(&address, &bytes, module, "visits"));
  assert_int_equal(bytes, 4);
  download(&visits, address, 4);
  assert_int_equal(visits, 5 + N);
  device_free(dx, sizeof x), device_free(dy, sizeof y);
  OK(cuModuleUnload(module));
}

static uint16_t half_of(int small) { /* a whole number of at most 11 bits as f16 */
  if (!small) return 0;
  unsigned magnitude = (unsigned)abs(small), top = 31 - (unsigned)__builtin_clz(magnitude);
  return (uint16_t)((small < 0 ? 0x8000 : 0) | (top + 15) << 10 | ((magnitude << (10 - top)) & 0x3ff));
}

/* With the search for races on: tiles that are copied and read in turns have none. */
static void gemm(void **state) {
  enum { M = 64, N = 96, K = 80 };
  static int a[M][K], b[K][N];
  static uint16_t ha[M][K], hb[K][N];
  static float c[M][N];
  (void)state;
  begin();
  setenv("WICK_EMULATOR_RACES", "1", 1);
  CUmodule module = load_file("gemm.ptx");
  for (int i = 0; i < M; i++)
    for (int k = 0; k < K; k++) ha[i][k] = half_of(a[i][k] = (int)(random_bits() % 41) - 20);
  for (int k = 0; k < K; k++)
    for (int j = 0; j < N; j++) hb[k][j] = half_of(b[k][j] = (int)(random_bits() % 41) - 20);
  uint64_t da = device_memory(sizeof ha), db = device_memory(sizeof hb), dc = device_memory(sizeof c);
  int m = M, n = N, k = K;
  upload(da, ha, sizeof ha), upload(db, hb, sizeof hb);
  OK(cuLaunchKernel(function_of(module, "gemm"), N / 32, M / 32, 1, 64, 1, 1, 0, NULL,
                    (void *[]){&da, &db, &dc, &m, &n, &k}, NULL));
  download(c, dc, sizeof c);
  for (int i = 0; i < M; i++)
    for (int j = 0; j < N; j++) {
      int sum = 0;
      for (int l = 0; l < K; l++) sum += a[i][l] * b[l][j];
      assert_true(c[i][j] == (float)sum);
    }
  device_free(da, sizeof ha), device_free(db, sizeof hb), device_free(dc, sizeof c);
  OK(cuModuleUnload(module));
}

/* Blocks on several threads of the host give the same. */
static void many_threads(void **state) {
  enum { N = 20000 };
  static float x[N];
  (void)state;
  begin();
  setenv("WICK_EMULATOR_THREADS", "4", 1);
  CUmodule module = load_file("kernels.ptx");
  float expected = 0, got;
  for (int i = 0; i < N; i++) x[i] = (float)(random_bits() % 10), expected += x[i];
  uint64_t dx = device_memory(sizeof x), out = device_memory(4);
  int n = N;
  upload(dx, x, sizeof x);
  OK(cuMemsetD8Async(out, 0, 4, NULL));
  OK(launch(function_of(module, "block_sum"), 40, 64, 0, (void *[]){&dx, &out, &n}));
  download(&got, out, 4);
  assert_true(got == expected);
  device_free(dx, sizeof x), device_free(out, 4);
  OK(cuModuleUnload(module));
}

int test_kernels(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(saxpy),    cmocka_unit_test(block_sum), cmocka_unit_test(softmax_rows),
      cmocka_unit_test(scan),     cmocka_unit_test(histogram), cmocka_unit_test(halves),
      cmocka_unit_test(switches), cmocka_unit_test(divide),    cmocka_unit_test(transpose),
      cmocka_unit_test(calls),    cmocka_unit_test(gemm),      cmocka_unit_test(many_threads)};
  return cmocka_run_group_tests_name("kernels", tests, NULL, NULL);
}
