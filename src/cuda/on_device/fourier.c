/* Fourier transforms of rows by Stockham's stages, which need no order of their own (C. Van Loan, "Computational
 * Frameworks for the Fast Fourier Transform", 1992, 1.7).
 *
 * A block has some rows in shared memory, real and imaginary parts apart. In a stage of radix R a thread takes R
 * numbers n / R apart into registers, turns them by roots and puts their transform back, `set` apart. f32 is computed
 * in f32, its roots in double. In: a wk__cuda_fourier. Tests: tests/cuda/test_fourier.py. */
#include "cuda/fourier.h"
#include "cuda/on_device/values.h"

LAUNCH_BOUNDS("rows_float", 256, 4);
LAUNCH_BOUNDS("rows_double", 256, 2);

enum { EACH = WK__FOURIER_EACH };

static SHARED double shared_numbers[WK__FOURIER_MOST + WK__FOURIER_MOST / 16];
static SHARED int64_t starts_in[WK__FOURIER_LANES], starts_out[WK__FOURIER_LANES];
static SHARED int32_t columns[WK__FOURIER_LANES];

/* What is computed of it is computed again behind this, where registers hold numbers. */
INLINE uint32_t this_thread(void) {
  int t = thread_index();
  __asm__ volatile("" : "+r"(t));
  return (uint32_t)t;
}

INLINE uint32_t divided(uint32_t e, uint32_t divider) { return divider ? (uint32_t)((uint64_t)e * divider >> 32) : e; }

/* exp(-2 pi i k / n), from an angle of an eighth turn at most */
INLINE void root_of(int64_t k, int64_t n, double *re, double *im) {
  int64_t quarter = (8 * (k % n) + n) / (2 * n), rest = 4 * (k % n) - quarter * n;
  double angle = -1.5707963267948966 * ((double)rest / (double)n), c = cos(angle), s = sin(angle);
  *re = quarter % 4 == 0 ? c : quarter % 4 == 1 ? s : quarter % 4 == 2 ? -c : -s;
  *im = quarter % 4 == 0 ? s : quarter % 4 == 1 ? -c : quarter % 4 == 2 ? -s : c;
}

INLINE int64_t start_of(const wk__cuda_fourier *f, const wk__cuda_rows *r, int64_t row) {
  int64_t at = 0;
  for (int d = f->dims - 1; d >= 0; d--) {
    at += row % f->sizes[d] * r->jump[d];
    row /= f->sizes[d];
  }
  return at;
}

/* cos and sin of k / 16, k / 3, ... of a turn */
#define C8 0.70710678118654752440
#define C16 0.92387953251128675613
#define S16 0.38268343236508977173
static const double cosines_16[] = {1, C16, C8, S16, 0, -S16, -C8, -C16, -1, -C16};
static const double sines_16[] = {0, S16, C8, C16, 1, C16, C8, S16, 0, -S16};
static const double cosines_3[] = {1, -0.5, -0.5};
static const double sines_3[] = {0, 0.86602540378443864676, -0.86602540378443864676};
static const double cosines_5[] = {1, 0.3090169943749474241, -0.8090169943749474241, -0.8090169943749474241,
                                   0.3090169943749474241};
static const double sines_5[] = {0, 0.95105651629515357212, 0.58778525229247312917, -0.58778525229247312917,
                                 -0.95105651629515357212};
static const double cosines_7[] = {1,
                                   0.62348980185873353053,
                                   -0.22252093395631440429,
                                   -0.90096886790241912624,
                                   -0.90096886790241912624,
                                   -0.22252093395631440429,
                                   0.62348980185873353053};
static const double sines_7[] = {0,
                                 0.78183148246802980871,
                                 0.97492791218182360702,
                                 0.43388373911755812048,
                                 -0.43388373911755812048,
                                 -0.97492791218182360702,
                                 -0.78183148246802980871};
static const double cosines_11[] = {1,
                                    0.84125353283118116886,
                                    0.41541501300188642553,
                                    -0.14231483827328514044,
                                    -0.65486073394528506406,
                                    -0.95949297361449738989,
                                    -0.95949297361449738989,
                                    -0.65486073394528506406,
                                    -0.14231483827328514044,
                                    0.41541501300188642553,
                                    0.84125353283118116886};
static const double sines_11[] = {0,
                                  0.54064081745559758211,
                                  0.90963199535451837141,
                                  0.98982144188093273238,
                                  0.75574957435425828377,
                                  0.28173255684142969771,
                                  -0.28173255684142969771,
                                  -0.75574957435425828377,
                                  -0.98982144188093273238,
                                  -0.90963199535451837141,
                                  -0.54064081745559758211};
static const double cosines_13[] = {1,
                                    0.8854560256532098959,
                                    0.56806474673115580251,
                                    0.12053668025532305335,
                                    -0.35460488704253562597,
                                    -0.74851074817110109863,
                                    -0.97094181742605202716,
                                    -0.97094181742605202716,
                                    -0.74851074817110109863,
                                    -0.35460488704253562597,
                                    0.12053668025532305335,
                                    0.56806474673115580251,
                                    0.8854560256532098959};
static const double sines_13[] = {0,
                                  0.46472317204376854566,
                                  0.82298386589365639458,
                                  0.9927088740980539928,
                                  0.93501624268541482344,
                                  0.66312265824079520238,
                                  0.23931566428755776715,
                                  -0.23931566428755776715,
                                  -0.66312265824079520238,
                                  -0.93501624268541482344,
                                  -0.9927088740980539928,
                                  -0.82298386589365639458,
                                  -0.46472317204376854566};

#define ENTRY(name) KERNEL(name) /* of a name that is a macro's */

#define number float
#define NAME(x) x##_float
#define FMA(a, b, c) __nvvm_fma_rn_f(a, b, c)
#define PAD 5
#include "cuda/on_device/fourier_body.h"
#undef number
#undef NAME
#undef FMA
#undef PAD

#define number double
#define NAME(x) x##_double
#define FMA(a, b, c) __nvvm_fma_rn_d(a, b, c)
#define PAD 4
#include "cuda/on_device/fourier_body.h"
