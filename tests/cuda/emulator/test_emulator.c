/* Tests of the emulator of the CUDA driver, through its API alone; the groups stand in tests/.
 *
 * Linked with the library that the emulator makes. Errors of kernels stay with a context for ever, as on hardware, so
 * each of those is made in a child of its own. */
#include "tests/common.h"

typedef struct group {
  const char *name;
  int (*run)(void);
} group;

/* With arguments: the groups of these names only. */
int main(int count, char **names) {
  static const group groups[] = {{"values", test_values},   {"conversions", test_conversions},
                                 {"kernels", test_kernels}, {"control", test_control},
                                 {"warps", test_warps},     {"memory", test_memory},
                                 {"streams", test_streams}, {"graphs", test_graphs},
                                 {"errors", test_errors},   {"parse", test_parse},
                                 {"bulk", test_bulk}};
  int failed = 0;
  for (size_t i = 0; i < COUNT(groups); i++) {
    bool asked = count == 1;
    for (int k = 1; k < count; k++) asked |= !strcmp(names[k], groups[i].name);
    if (asked) failed += groups[i].run();
  }
  return failed != 0;
}
