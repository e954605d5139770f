/* Orthogonal polynomials at x, of a degree that is an element too: their recurrences. In float32 every step is rounded,
 * so that what overflows there does so here. Sources: DLMF 18.5 (Chebyshev's by angles), 18.9 (recurrences). A degree
 * below 0 gives 0. A part of elements_body.h. Tests: tests/ops/. */

static double rounded(double y, wk_dtype dtype) { return dtype == WK_FLOAT64 ? y : (float)y; }

/* A degree that no int64 holds is none. */
static double whole(double degree) { return fabs(degree) < 0x1p63 ? trunc(degree) : -1; }

/* ---- Chebyshev's four kinds ---- */

enum { KIND_T, KIND_U, KIND_V, KIND_W };

/* At 1; at -1 those of odd degree have the other sign, and V and W change their parts. */
static double at_end(int kind, double n, bool minus) {
  bool negative = minus && fmod(n, 2) != 0;
  if (minus && kind >= KIND_V) kind = kind == KIND_V ? KIND_W : KIND_V;
  double size = kind == KIND_U ? n + 1 : kind == KIND_W ? 2 * n + 1 : 1;
  return negative ? -size : size;
}
/* By the angle whose cosine x is, for high degrees. */
static double by_angle(int kind, double x, double n) {
  double angle = acos(x);
  if (kind == KIND_T) return cos(n * angle);
  if (kind == KIND_U) return sin((n + 1) * angle) / sin(angle);
  if (kind == KIND_V) return cos((n + 0.5) * angle) / cos(angle / 2);
  return sin((n + 0.5) * angle) / sin(angle / 2);
}
static double chebyshev(int kind, double x, double degree, wk_dtype dtype) {
  double n = whole(degree), last = 1, now = kind == KIND_T ? x : 2 * x - (kind == KIND_V) + (kind == KIND_W);
  if (n < 0) return 0;
  if (fabs(x) == 1) return at_end(kind, n, x < 0);
  if (n > (kind == KIND_T ? 6 : 8) && fabs(x) < 1) return by_angle(kind, x, n);
  if (n == 0) return 1;
  for (double k = 2; k <= n && !isnan(now); k++) {
    double next = rounded(rounded(2 * x * now, dtype) - last, dtype);
    last = now;
    now = next;
  }
  return now;
}
#define CHEBYSHEV(letter, kind)                                                                     \
  static double plain_##letter(double x, double n, wk_dtype d) { return chebyshev(kind, x, n, d); } \
  static double shifted_##letter(double x, double n, wk_dtype d) {                                  \
    return chebyshev(kind, rounded(2 * x - 1, d), n, d);                                            \
  }
CHEBYSHEV(t, KIND_T)
CHEBYSHEV(u, KIND_U)
CHEBYSHEV(v, KIND_V)
CHEBYSHEV(w, KIND_W)

/* ---- the others ---- */

/* PyTorch gives no values of Hermite's above these degrees. */
static bool too_high(double n, wk_dtype dtype) { return n > (dtype == WK_FLOAT64 ? 512 : 128); }

/* first: of degree 1; then 2 x p - 2 k before (h), x p - k before (he) */
static double hermite(double x, double degree, double factor, wk_dtype dtype) {
  double n = whole(degree), last = 1, now = factor * x;
  if (n < 0) return 0;
  if (n == 0) return 1;
  if (n > 1 && too_high(n, dtype)) return NAN;
  for (double k = 1; k < n; k++) {
    double next = rounded(rounded(factor * x * now, dtype) - rounded(factor * k * last, dtype), dtype);
    last = now;
    now = next;
  }
  return now;
}
static double hermite_h(double x, double n, wk_dtype dtype) { return hermite(x, n, 2, dtype); }
static double hermite_he(double x, double n, wk_dtype dtype) { return hermite(x, n, 1, dtype); }

static double laguerre(double x, double degree, wk_dtype dtype) {
  double n = whole(degree), last = 1, now = 1 - x;
  if (n < 0) return 0;
  if (x == 0 || n == 0) return 1;
  for (double k = 1; k < n && !isnan(now); k++) {
    double next = rounded((rounded((2 * k + (1 - x)) * now, dtype) - rounded(k * last, dtype)) / (k + 1), dtype);
    last = now;
    now = next;
  }
  return now;
}
static double legendre(double x, double degree, wk_dtype dtype) {
  double n = whole(degree), last = 1, now = x;
  if (n < 0) return 0;
  if (fabs(x) == 1) return x > 0 || fmod(n, 2) == 0 ? 1 : -1;
  if (n == 0) return 1;
  for (double k = 1; k < n && !isnan(now); k++) {
    double next = rounded((rounded((2 * k + 1) * x * now, dtype) - rounded(k * last, dtype)) / (k + 1), dtype);
    last = now;
    now = next;
  }
  return now;
}
