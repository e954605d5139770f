/* Regions of images and their bins: the host's text (vision.c) and the device's (cuda/on_device/regions.c). Who
 * includes it has math.h. Tests: tests/python/test_vision.py, tests/cuda/test_vision.py. */
#include "cpu/kernels/regions.h"
#include "cpu/kernels/rounded.h"

#define MOST_SAMPLES 65536.0 /* of a bin, each way */

/* ---- means of places between the pixels ---- */

typedef struct place {
  int64_t at[4];    /* the pixels around it, in a plane */
  double weight[4]; /* how much of each */
} place;

/* Between which two of `size` pixels a coordinate lies, and how far behind the first; false when it is outside. */
static bool find_pixels(bool wide, double x, int64_t size, int64_t *low, int64_t *high, double *behind) {
  if (!(x >= -1 && x <= (double)size)) return false;
  if (x <= 0) x = 0;
  *low = (int64_t)x;
  if (*low >= size - 1) {
    *low = *high = size - 1;
    x = (double)*low;
  } else {
    *high = *low + 1;
  }
  *behind = rounded(wide, x - (double)*low);
  return true;
}

static place place_at(const wk__regions *r, double y, double x) {
  place p = {{0}, {0}};
  int64_t top, bottom, left, right;
  double below, beyond;
  bool wide = r->wide;
  if (!find_pixels(wide, y, r->height, &top, &bottom, &below)) return p;
  if (!find_pixels(wide, x, r->width, &left, &right, &beyond)) return p;
  double above = rounded(wide, 1 - below), before = rounded(wide, 1 - beyond);
  p.at[0] = top * r->width + left, p.at[1] = top * r->width + right;
  p.at[2] = bottom * r->width + left, p.at[3] = bottom * r->width + right;
  p.weight[0] = rounded(wide, above * before), p.weight[1] = rounded(wide, above * beyond);
  p.weight[2] = rounded(wide, below * before), p.weight[3] = rounded(wide, below * beyond);
  return p;
}

/* One direction of a region: where it begins, a bin's length, places of a bin. */
typedef struct side {
  double begin, bin;
  int64_t places;
} side;

/* False: it has too many places. */
static bool find_side(const wk__regions *r, int64_t k, int first, int64_t bins, side *s) {
  bool wide = r->wide;
  double offset = r->aligned ? 0.5 : 0, scale = rounded(wide, r->scale);
  s->begin = rounded(wide, rounded(wide, element(r->rois, wide, 5 * k + first) * scale) - offset);
  double end = rounded(wide, rounded(wide, element(r->rois, wide, 5 * k + first + 2) * scale) - offset);
  double length = rounded(wide, end - s->begin);
  if (!r->aligned && !(length > 1)) length = 1;
  s->bin = rounded(wide, length / (double)bins);
  double places = r->sampling > 0 ? (double)r->sampling : ceil(s->bin);
  if (!(places <= MOST_SAMPLES)) return false;
  s->places = places > 0 ? (int64_t)places : 0;
  return true;
}

static double coordinate(bool wide, const side *s, int64_t bin, int64_t i) {
  double start = rounded(wide, s->begin + rounded(wide, (double)bin * s->bin));
  double step = rounded(wide, rounded(wide, ((double)i + 0.5) * s->bin) / (double)s->places);
  return rounded(wide, start + step);
}

/* ---- largest elements ---- */

/* The pixels of a bin in one direction: from begin to end - 1. */
static void find_bin(const wk__regions *r, int64_t k, int first, int64_t bin, int64_t bins, int64_t size,
                     int64_t *begin, int64_t *end) {
  bool wide = r->wide;
  double scale = rounded(wide, r->scale), edge[2];
  for (int i = 0; i < 2; i++) {
    double x = round(rounded(wide, element(r->rois, wide, 5 * k + first + 2 * i) * scale));
    edge[i] = x >= -1e9 && x <= 1e9 ? x : 0;
  }
  double length = edge[1] - edge[0] + 1, each = rounded(wide, (length > 1 ? length : 1) / (double)bins);
  double low = floor(rounded(wide, (double)bin * each)) + edge[0];
  double high = ceil(rounded(wide, (double)(bin + 1) * each)) + edge[0];
  *begin = (int64_t)fmin(fmax(low, 0), (double)size), *end = (int64_t)fmin(fmax(high, 0), (double)size);
}
