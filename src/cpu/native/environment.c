/* The environment as the thread that submits units sees it.
 *
 * Workers must not call getenv or walk `environ`: the program may call setenv meanwhile, which frees what they read (a
 * Python program does so by `os.environ[name] = value`). So settings and the compiler's own environment come from a
 * copy, one block, made where units are submitted. Tests: tests/c/test_native.c. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <unistd.h>

#include "cpu/native/native_internal.h"

char **copy_environment(void) {
  size_t count = 0, size = 0;
  for (; environ && environ[count]; count++) size += strlen(environ[count]) + 1;
  char **list = wk__alloc((count + 1) * sizeof *list + size);
  if (!list) return NULL;
  char *text = (char *)(list + count + 1);
  for (size_t k = 0; k < count; k++) {
    size_t length = strlen(environ[k]) + 1;
    list[k] = memcpy(text, environ[k], length);
    text += length;
  }
  list[count] = NULL;
  return list;
}

const char *environment_value(char *const *environment, const char *name) {
  size_t length = strlen(name);
  for (; *environment; environment++)
    if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') return *environment + length + 1;
  return NULL;
}
