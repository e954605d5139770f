/* How much two boxes have in common: the host's text (vision.c) and the device's (cuda/on_device/boxes.c). Who includes
 * it has stdint.h and stdbool.h. Tests: tests/python/test_vision.py, tests/cuda/test_vision.py. */

#include "cpu/kernels/rounded.h"

typedef struct boxes {
  const void *corners, *scores; /* (N, 4), (N) */
  bool wide;
} boxes;

static double area(const boxes *all, int64_t i) {
  double c[4];
  for (int k = 0; k < 4; k++) c[k] = element(all->corners, all->wide, 4 * i + k);
  return rounded(all->wide, rounded(all->wide, c[2] - c[0]) * rounded(all->wide, c[3] - c[1]));
}

/* The share of two boxes that both have. */
static double overlap(const boxes *all, int64_t i, int64_t j, const double *areas) {
  double side[2];
  for (int k = 0; k < 2; k++) {
    double low_i = element(all->corners, all->wide, 4 * i + k), low_j = element(all->corners, all->wide, 4 * j + k);
    double high_i = element(all->corners, all->wide, 4 * i + k + 2);
    double high_j = element(all->corners, all->wide, 4 * j + k + 2);
    double low = low_i < low_j ? low_j : low_i, high = high_j < high_i ? high_j : high_i;
    double length = rounded(all->wide, high - low);
    side[k] = 0 < length ? length : 0;
  }
  double both = rounded(all->wide, side[0] * side[1]);
  double either = rounded(all->wide, rounded(all->wide, areas[i] + areas[j]) - both);
  return rounded(all->wide, both / either);
}
