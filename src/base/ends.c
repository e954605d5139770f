/* The ends of a process. A library that is loaded late, by a thread in the background, is taken apart by exit() before
 * what was registered earlier is called: so an interpreter, which knows that the end is near before exit() does, calls
 * them first. Tests: tests/cuda/test_programs.py. */
#include "base/ends.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"

enum { MOST_ENDS = 8 };

static struct {
  pthread_mutex_t lock;
  void (*ends[MOST_ENDS])(void);
  int count;
  pid_t process; /* whose they are */
} known = {.lock = PTHREAD_MUTEX_INITIALIZER};

void wk__at_end(void (*end)(void)) {
  pthread_mutex_lock(&known.lock);
  if (known.process != getpid()) known.count = 0;
  if (known.count == 0) (void)atexit(wk__run_ends);
  known.process = getpid();
  if (known.count < MOST_ENDS) known.ends[known.count++] = end;
  pthread_mutex_unlock(&known.lock);
}

void wk__run_ends(void) {
  void (*ends[MOST_ENDS])(void);
  pthread_mutex_lock(&known.lock);
  int count = known.process == getpid() ? known.count : 0;
  memcpy(ends, known.ends, sizeof ends);
  pthread_mutex_unlock(&known.lock);
  while (count > 0) ends[--count]();
}
