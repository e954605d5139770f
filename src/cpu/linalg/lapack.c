/* The one place that knows LAPACK's routines: their names, their arguments, and the libraries that have them. See
 * lapack.h.
 *
 * Builds differ in the size of their integers and in their names: scipy_dgesdd_64_, dgesdd_64_ and scipy_dgesdd_ are
 * the same routine. Integers are given as 8 bytes with the lower half first, which a routine of 4 bytes reads as well;
 * arrays of them are converted. */
#include "cpu/linalg/lapack.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each exists for s, d, c and z; the second name is that of the complex ones where it is another. */
#define ROUTINES(X) \
  X(getrf, getrf)   \
  X(getrs, getrs)   \
  X(trsm, trsm) X(potrf, potrf) X(geqrf, geqrf) X(orgqr, ungqr) X(syevd, heevd) X(gesdd, gesdd) X(geev, geev)

typedef void routine(const void *, ...); /* called with the addresses that it takes */
static struct {
#define X(name, complex_name) routine *name[4];
  ROUTINES(X)
#undef X
  bool is_there, wide;      /* wide: its integers have 8 bytes */
  int (*get_threads)(void); /* NULL: others than OpenBLAS have no such thing */
  void (*set_threads)(int);
} lapack;

static char folders[4096];
static const int64_t LEAST[WK__LAPACK_TASKS] = {
    [WK__LAPACK_SOLVE] = 24, [WK__LAPACK_TRIANGULAR] = 64, [WK__LAPACK_CHOLESKY] = 48, [WK__LAPACK_QR] = 32,
    [WK__LAPACK_EIGH] = 48,  [WK__LAPACK_SVD] = 48,        [WK__LAPACK_EIG] = 6,
};

/* ---- finding it ---- */

/* A symbol by LAPACK's own name; `wide` says which spelling was found. */
static void *symbol(void *library, const char *name, bool *wide) {
  static const struct {
    const char *format;
    bool wide;
  } spellings[] = {{"scipy_%s_64_", true}, {"%s_64_", true}, {"scipy_%s_", false}, {"%s_", false}};
  for (size_t i = 0; i < WK_COUNT(spellings); i++) {
    char text[64];
    snprintf(text, sizeof text, spellings[i].format, name);
    void *found = dlsym(library, text);
    if (!found) continue;
    *wide = spellings[i].wide;
    return found;
  }
  return NULL;
}

static bool take_routine(void *library, routine *out[4], const char *name, const char *complex_name) {
  static const char letters[] = "sdcz";
  for (int t = 0; t < 4; t++) {
    char text[16];
    snprintf(text, sizeof text, "%c%s", letters[t], t < 2 ? name : complex_name);
    *(void **)&out[t] = symbol(library, text, &lapack.wide);
    if (!out[t]) return false;
  }
  return true;
}

/* A name without a suffix may be of either size: a routine that writes three integers tells. */
static void find_width(void *library) {
  bool wide;
  routine *version;
  *(void **)&version = symbol(library, "ilaver", &wide);
  if (!version) return;
  int64_t numbers[3] = {-1, -1, -1};
  version(&numbers[0], &numbers[1], &numbers[2]);
  lapack.wide = numbers[0] >= 0 && numbers[0] < 1000;
}

static void find_threads(void *library) {
  static const char *const getters[] = {"scipy_openblas_get_num_threads64_", "scipy_openblas_get_num_threads",
                                        "openblas_get_num_threads64_", "openblas_get_num_threads"};
  static const char *const setters[] = {"scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads",
                                        "openblas_set_num_threads64_", "openblas_set_num_threads"};
  for (size_t i = 0; i < WK_COUNT(getters); i++) {
    *(void **)&lapack.get_threads = dlsym(library, getters[i]);
    *(void **)&lapack.set_threads = dlsym(library, setters[i]);
    if (lapack.get_threads && lapack.set_threads) return;
  }
  lapack.get_threads = NULL;
}

static bool take_library(void *library) {
  if (!library) return false;
#define X(name, complex_name) \
  if (!take_routine(library, lapack.name, #name, #complex_name)) return false;
  ROUTINES(X)
#undef X
  find_width(library);
  find_threads(library);
  return true;
}
static bool open_library(const char *name) { return take_library(dlopen(name, RTLD_NOW | RTLD_LOCAL)); }

static bool open_matching(const char *folder, int length, const char *pattern) {
  char text[4096 + 64];
  snprintf(text, sizeof text, "%.*s/%s", length, folder, pattern);
  glob_t found;
  bool good = false;
  if (glob(text, 0, NULL, &found) == 0)
    for (size_t i = 0; i < found.gl_pathc && !good; i++) good = open_library(found.gl_pathv[i]);
  globfree(&found);
  return good;
}

static bool open_usual(void) {
  static const char *const patterns[] = {
      "numpy.libs/libscipy_openblas*.so*", "scipy_openblas64/lib/libscipy_openblas*.so*",
      "scipy_openblas32/lib/libscipy_openblas*.so*", "scipy.libs/libscipy_openblas*.so*"};
  static const char *const names[] = {"libopenblas.so.0", "libopenblas.so", "liblapack.so.3", "liblapack.so"};
  for (size_t p = 0; p < WK_COUNT(patterns); p++)
    for (const char *folder = folders; *folder;) {
      int length = (int)strcspn(folder, ":");
      if (length && open_matching(folder, length, patterns[p])) return true;
      folder += length + (folder[length] == ':');
    }
  for (size_t i = 0; i < WK_COUNT(names); i++)
    if (open_library(names[i])) return true;
  return false;
}

static void load(void) {
  const char *given = getenv("WICK_LAPACK");
  lapack.is_there = given ? *given && open_library(given) : open_usual();
  if (given && *given && !lapack.is_there)
    fprintf(stderr, "[wick] WICK_LAPACK=%.300s cannot be used as LAPACK; wick's own routines are used\n", given);
}

void wk__lapack_look_in(const char *list) { snprintf(folders, sizeof folders, "%s", list); }
bool wk__lapack_takes(wk__lapack_task task, int64_t m, int64_t n) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  int64_t size = wk__min(m, n);
  if (size == 0 || size < LEAST[task] || wk__max(m, n) > INT32_MAX) return false;
  pthread_once(&once, load);
  return lapack.is_there;
}

/* ---- calling it ---- */

/* The library computes on as many threads as wick; what others set stays as it was. */
static int begin_threads(void) {
  int before = lapack.get_threads ? lapack.get_threads() : 0, wanted = wk_get_num_threads();
  if (!lapack.get_threads || before == wanted) return 0;
  lapack.set_threads(wanted);
  return before;
}
static void end_threads(int before) {
  if (before) lapack.set_threads(before);
}
/* A call with threads set; every length of a string is 1. */
#define CALL(name, type, ...)               \
  do {                                      \
    int before = begin_threads();           \
    lapack.name[type](__VA_ARGS__, 1L, 1L); \
    end_threads(before);                    \
  } while (0)

/* What a routine wrote into an integer that was 0. */
static int64_t given_back(int64_t x) { return lapack.wide ? x : (int32_t)x; }
static size_t bytes_of(wk__lapack_type type) { return (size_t)4 << ((type & 1) + (type >= WK__LAPACK_C)); }
static bool is_complex(wk__lapack_type type) { return type >= WK__LAPACK_C; }
/* The first number of room, where a routine has said how much it wants. */
static int64_t wanted(wk__lapack_type type, const void *room) {
  return (int64_t)(type & 1 ? *(const double *)room : *(const float *)room) + 1;
}

static void narrow(int64_t *pivots, int64_t n) {
  for (int64_t i = 0; i < n && !lapack.wide; i++) ((int32_t *)pivots)[i] = (int32_t)pivots[i];
}
static void widen(int64_t *pivots, int64_t n) {
  for (int64_t i = n - 1; i >= 0 && !lapack.wide; i--) pivots[i] = ((int32_t *)pivots)[i];
}

int64_t wk__lapack_lu(wk__lapack_type type, void *a, int64_t m, int64_t n, int64_t *pivots) {
  int64_t info = 0;
  CALL(getrf, type, &m, &n, a, &m, pivots, &info);
  widen(pivots, wk__min(m, n));
  return given_back(info);
}

int64_t wk__lapack_lu_solve(wk__lapack_type type, const void *lu, const int64_t *pivots, void *b, int64_t n,
                            int64_t k) {
  int64_t info = 0, *own = wk__alloc((size_t)n * sizeof *own);
  if (!own) return -1;
  memcpy(own, pivots, (size_t)n * sizeof *own);
  narrow(own, n);
  CALL(getrs, type, "N", &n, &k, lu, &n, own, b, &n, &info);
  wk__free(own);
  return given_back(info);
}

void wk__lapack_triangular(wk__lapack_type type, const void *a, void *b, int64_t n, int64_t k, bool upper, bool unit) {
  static const float one[] = {1, 0};
  static const double wide_one[] = {1, 0};
  const void *factor = type & 1 ? (const void *)wide_one : one;
  CALL(trsm, type, "L", upper ? "U" : "L", "N", unit ? "U" : "N", &n, &k, factor, a, &n, b, &n);
}

int64_t wk__lapack_cholesky(wk__lapack_type type, void *a, int64_t n) {
  int64_t info = 0;
  CALL(potrf, type, "L", &n, a, &n, &info);
  return given_back(info);
}

/* Calls a routine twice: `size` numbers of room are -1 first, which asks how many it wants. */
#define WITH_ROOM(type, ...)                                            \
  do {                                                                  \
    double asked[2] = {0};                                              \
    int64_t size = -1;                                                  \
    void *room = asked;                                                 \
    __VA_ARGS__;                                                        \
    size = wanted(type, room);                                          \
    room = info == 0 ? wk__alloc((size_t)size * bytes_of(type)) : NULL; \
    if (!room) return info ? given_back(info) : -1;                     \
    __VA_ARGS__;                                                        \
    wk__free(room);                                                     \
  } while (0)

int64_t wk__lapack_qr(wk__lapack_type type, void *a, void *tau, int64_t m, int64_t n) {
  int64_t info = 0;
  WITH_ROOM(type, CALL(geqrf, type, &m, &n, a, &m, tau, room, &size, &info));
  return given_back(info);
}

int64_t wk__lapack_q(wk__lapack_type type, void *q, const void *tau, int64_t m, int64_t n, int64_t k) {
  int64_t info = 0;
  WITH_ROOM(type, CALL(orgqr, type, &m, &n, &k, q, &m, tau, room, &size, &info));
  return given_back(info);
}

static int64_t eigh_in(wk__lapack_type type, void *a, void *values, int64_t n, const char *job, const char *uplo,
                       void *real_room, int64_t real_size, int64_t *integers, int64_t integer_count) {
  int64_t info = 0;
  if (is_complex(type))
    WITH_ROOM(type, CALL(syevd, type, job, uplo, &n, a, &n, values, room, &size, real_room, &real_size, integers,
                         &integer_count, &info));
  else
    WITH_ROOM(type, CALL(syevd, type, job, uplo, &n, a, &n, values, room, &size, integers, &integer_count, &info));
  return given_back(info);
}
int64_t wk__lapack_eigh(wk__lapack_type type, void *a, void *values, int64_t n, bool upper, bool vectors) {
  int64_t integer_count = 5 * n + 3, real_size = is_complex(type) ? 2 * n * n + 5 * n + 1 : 0;
  void *real_room = wk__alloc((size_t)real_size * sizeof(double) + 1);
  int64_t *integers = wk__alloc((size_t)integer_count * sizeof *integers), info = -1;
  if (real_room && integers)
    info = eigh_in(type, a, values, n, vectors ? "V" : "N", upper ? "U" : "L", real_room, real_size, integers,
                   integer_count);
  wk__free(real_room);
  wk__free(integers);
  return info;
}

static int64_t svd_in(wk__lapack_type type, char job, void *a, void *values, void *u, void *vh, int64_t m, int64_t n,
                      void *real_room, int64_t *integers) {
  int64_t info = 0, k = job == 'A' ? n : wk__min(m, n);
  if (job == 'N') k = 1;
  if (is_complex(type))
    WITH_ROOM(type,
              CALL(gesdd, type, &job, &m, &n, a, &m, values, u, &m, vh, &k, room, &size, real_room, integers, &info));
  else
    WITH_ROOM(type, CALL(gesdd, type, &job, &m, &n, a, &m, values, u, &m, vh, &k, room, &size, integers, &info));
  return given_back(info);
}
int64_t wk__lapack_svd(wk__lapack_type type, char job, void *a, void *values, void *u, void *vh, int64_t m, int64_t n) {
  int64_t low = wk__min(m, n), high = wk__max(m, n), info = -1;
  int64_t most = wk__max(5 * low * low + 5 * low, 2 * high * low + 2 * low * low + low);
  void *real_room = wk__alloc(is_complex(type) ? (size_t)most * sizeof(double) : 1);
  int64_t *integers = wk__alloc((size_t)(8 * low) * sizeof *integers);
  if (real_room && integers) info = svd_in(type, job, a, values, u, vh, m, n, real_room, integers);
  wk__free(real_room);
  wk__free(integers);
  return info;
}

/* Of a real matrix the two vectors of a pair of conjugated values are given as their real and imaginary parts. */
#define UNPACK(name, number)                                                                                         \
  static void name(const number *re, const number *im, const number *packed, number *values, number *v, int64_t n) { \
    for (int64_t j = 0; j < n; j++) {                                                                                \
      bool first = im[j] > 0, second = im[j] < 0;                                                                    \
      const number *x = packed + (second ? j - 1 : j) * n, *y = x + n;                                               \
      values[2 * j] = re[j];                                                                                         \
      values[2 * j + 1] = im[j];                                                                                     \
      for (int64_t i = 0; i < n; i++) {                                                                              \
        v[2 * (j * n + i)] = x[i];                                                                                   \
        v[2 * (j * n + i) + 1] = first ? y[i] : second ? -y[i] : 0;                                                  \
      }                                                                                                              \
    }                                                                                                                \
  }
UNPACK(unpack_float, float)
UNPACK(unpack_double, double)

static int64_t real_eig(wk__lapack_type type, void *a, void *re, void *im, void *packed, int64_t n) {
  int64_t info = 0;
  WITH_ROOM(type, CALL(geev, type, "N", "V", &n, a, &n, re, im, packed, &n, packed, &n, room, &size, &info));
  return given_back(info);
}
static int64_t complex_eig(wk__lapack_type type, void *a, void *values, void *vectors, void *real_room, int64_t n) {
  int64_t info = 0;
  WITH_ROOM(type,
            CALL(geev, type, "N", "V", &n, a, &n, values, vectors, &n, vectors, &n, room, &size, real_room, &info));
  return given_back(info);
}
int64_t wk__lapack_eig(wk__lapack_type type, void *a, void *values, void *vectors, int64_t n) {
  size_t bytes = bytes_of(type), line = (size_t)n * bytes;
  char *room = wk__alloc(is_complex(type) ? 2 * line : 2 * line + (size_t)n * line);
  if (!room) return -1;
  int64_t info;
  if (is_complex(type)) {
    info = complex_eig(type, a, values, vectors, room, n);
  } else {
    info = real_eig(type, a, room, room + line, room + 2 * line, n);
    void *re = room, *im = room + line, *packed = room + 2 * line;
    if (info == 0 && type == WK__LAPACK_S) unpack_float(re, im, packed, values, vectors, n);
    if (info == 0 && type == WK__LAPACK_D) unpack_double(re, im, packed, values, vectors, n);
  }
  wk__free(room);
  return info;
}
