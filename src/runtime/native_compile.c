/* The system's C compiler: which one, with which options, and running it.
 *
 * The source goes through a pipe, the shared object comes back through a private folder in memory where there is one,
 * so nothing of a killed process is left but files there. posix_spawn, because a fork of a process with much memory
 * takes longer than compiling. The driver and a shared object rather than `cc1 | as` and a loader of our own: that
 * would save some 15 ms a unit in the background, and know every relocation of every machine.
 * Tests: tests/c/test_native.c. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/native_internal.h"

extern char **environ;

/* Bits first: no contraction, nothing reassociated. -O1 with the dearer optimisations is as fast as -O2. */
static const char *const options[] = {"-x",
                                      "c",
                                      "-std=gnu11",
                                      "-O1",
                                      "-fexpensive-optimizations",
                                      "-ffp-contract=off",
                                      "-fPIC",
                                      "-shared",
                                      "-nostdlib",
                                      "-w",
                                      "-fno-math-errno",
                                      "-fno-trapping-math",
                                      "-pipe",
                                      "-fno-plt",
                                      "-g0",
                                      "-fno-strict-aliasing",
                                      "-fno-asynchronous-unwind-tables",
                                      "-fno-stack-protector"};

static const char *const level_options[WK__CPU_LEVEL_COUNT][10] = {
#ifdef __x86_64__
    [WK__CPU_PORTABLE] = {"-msse2"},
    [WK__CPU_AVX2] = {"-mavx2", "-mfma", "-mf16c", "-mbmi2"},
    [WK__CPU_AVX512] = {"-mavx512f", "-mavx512dq", "-mavx512bw", "-mavx512vl", "-mfma", "-mf16c", "-mbmi2",
                        "-mprefer-vector-width=512"},
#endif
};

/* ---- which ---- */

static bool is_program(const char *path) {
  struct stat s;
  return stat(path, &s) == 0 && S_ISREG(s.st_mode) && access(path, X_OK) == 0;
}

/* On PATH, or as it stands when it has a slash. Owned. */
static char *path_of(const char *name) {
  if (strchr(name, '/')) return is_program(name) ? wk__strdup(name) : NULL;
  const char *path = getenv("PATH");
  for (path = path ? path : "/usr/bin:/bin"; *path;) {
    size_t length = strcspn(path, ":");
    char candidate[4096];
    snprintf(candidate, sizeof candidate, "%.*s/%s", (int)length, path, name);
    if (length && is_program(candidate)) return wk__strdup(candidate);
    path += length + (path[length] == ':');
  }
  return NULL;
}

static bool split_words(compiler *c, const char *text) {
  int count = 0;
  while (*(text += strspn(text, " \t")) && count < (int)WK_COUNT(c->words) - 1) {
    size_t length = strcspn(text, " \t");
    char *word = wk__alloc(length + 1);
    if (!word) return false;
    memcpy(word, text, length);
    word[length] = 0;
    c->words[count++] = word;
    text += length;
  }
  return count > 0;
}

/* Of a link the file behind it: cc stays, what it points to changes. */
static void identify(compiler *c) {
  struct stat s;
  if (stat(c->path, &s) != 0) return;
  snprintf(c->identity, sizeof c->identity, "%llx %llx %lld.%09ld %llx", (unsigned long long)s.st_dev,
           (unsigned long long)s.st_ino, (long long)s.st_mtim.tv_sec, s.st_mtim.tv_nsec, (unsigned long long)s.st_size);
}

void release_compiler(compiler *c) {
  for (size_t k = 0; k < WK_COUNT(c->words); k++) wk__free(c->words[k]);
  wk__free(c->path);
  memset(c, 0, sizeof *c);
}

bool find_compiler(compiler *c, char *why, size_t why_size) {
  const char *wanted = getenv("WICK_CC"), *const usual[] = {"cc", "gcc", "clang"};
  memset(c, 0, sizeof *c);
  bool given = wanted && *wanted;
  for (size_t k = 0; k < (given ? 1 : WK_COUNT(usual)); k++) {
    if (split_words(c, given ? wanted : usual[k]) && (c->path = path_of(c->words[0]))) {
      identify(c);
      return true;
    }
    release_compiler(c);
  }
  snprintf(why, why_size, given ? "WICK_CC=%.200s is no program" : "no C compiler (cc, gcc, clang) on PATH%.0s",
           given ? wanted : "");
  return false;
}

void hash_request(const compiler *c, const char *source, wk__cpu_level level, uint8_t out[WK__HASH_BYTES]) {
  wk__hasher h;
  wk__hasher_start(&h, NULL, 0);
  wk__hasher_add(&h, "wick 1", 7);
  for (size_t k = 0; k < WK_COUNT(options); k++) wk__hasher_add(&h, options[k], strlen(options[k]) + 1);
  for (int k = 0; level_options[level][k]; k++)
    wk__hasher_add(&h, level_options[level][k], strlen(level_options[level][k]) + 1);
  for (int k = 0; c->words[k]; k++) wk__hasher_add(&h, c->words[k], strlen(c->words[k]) + 1);
  wk__hasher_add(&h, c->path, strlen(c->path) + 1);
  wk__hasher_add(&h, c->identity, strlen(c->identity) + 1);
  wk__hasher_add(&h, source, strlen(source));
  wk__hasher_finish(&h, out);
}

/* ---- running ---- */

typedef struct job {
  char folder[300], output[320], messages[320];
  int source[2]; /* a pipe */
} job;

/* In memory where the system has such a folder, else where temporary files go. */
static bool make_folder(job *j) {
  const char *temporary = getenv("TMPDIR");
  const char *const places[] = {"/dev/shm", temporary && *temporary ? temporary : "/tmp", "/tmp"};
  for (size_t k = 0; k < WK_COUNT(places); k++) {
    if (strlen(places[k]) > 250) continue;
    snprintf(j->folder, sizeof j->folder, "%s/wick-XXXXXX", places[k]);
    if (!mkdtemp(j->folder)) continue;
    snprintf(j->output, sizeof j->output, "%s/unit.so", j->folder);
    snprintf(j->messages, sizeof j->messages, "%s/messages", j->folder);
    return true;
  }
  return false;
}

static void remove_folder(const job *j) {
  unlink(j->output);
  unlink(j->messages);
  rmdir(j->folder); /* stays when the compiler left something: only names that we know are removed */
}

static void list_arguments(const compiler *c, const job *j, wk__cpu_level level, const char **out) {
  int n = 0;
  for (int k = 0; c->words[k]; k++) out[n++] = c->words[k];
  for (size_t k = 0; k < WK_COUNT(options); k++) out[n++] = options[k];
  for (int k = 0; level_options[level][k]; k++) out[n++] = level_options[level][k];
  out[n++] = "-o";
  out[n++] = j->output;
  out[n++] = "-";
  out[n] = NULL;
}

/* The compiler's environment is ours but for TMPDIR, so that what it writes lies in the private folder. */
static char **environment_for(const job *j, char *temporary, size_t size) {
  size_t count = 0, kept = 0;
  while (environ[count]) count++;
  char **list = wk__alloc((count + 2) * sizeof *list);
  if (!list) return NULL;
  for (size_t k = 0; k < count; k++)
    if (strncmp(environ[k], "TMPDIR=", 7) != 0) list[kept++] = environ[k];
  snprintf(temporary, size, "TMPDIR=%s", j->folder);
  list[kept++] = temporary;
  list[kept] = NULL;
  return list;
}

static int spawn(const compiler *c, const job *j, wk__cpu_level level, pid_t *child) {
  const char *arguments[64];
  char temporary[320];
  char **environment = environment_for(j, temporary, sizeof temporary);
  if (!environment) return ENOMEM;
  list_arguments(c, j, level, arguments);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, j->source[0], 0);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, 2, j->messages, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  int error = posix_spawn(child, c->path, &files, &attributes, (char *const *)arguments, environment);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  wk__free(environment);
  return error;
}

/* True when it ended well, as far as can be known: a program that waits for all its children may have taken ours. */
static bool wait_for(pid_t child, int *status) {
  *status = 0;
  while (waitpid(child, status, 0) < 0)
    if (errno != EINTR) return errno == ECHILD;
  return WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
}

static void first_message(const job *j, int status, char *why, size_t why_size) {
  char text[400] = "";
  int fd = open(j->messages, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[n > 0 ? n : 0] = 0;
  text[strcspn(text, "\n")] = 0;
  if (WIFSIGNALED(status))
    snprintf(why, why_size, "the C compiler was ended by signal %d", WTERMSIG(status));
  else
    snprintf(why, why_size, "the C compiler failed (status %d): %s", WEXITSTATUS(status), text);
}

static bool run_compiler(const compiler *c, const job *j, const char *source, wk__cpu_level level, _Atomic pid_t *child,
                         char *why, size_t why_size) {
  pid_t pid;
  int status, error = spawn(c, j, level, &pid);
  close(j->source[0]);
  if (error) {
    close(j->source[1]);
    snprintf(why, why_size, "cannot start %.200s: %s", c->path, strerror(error));
    return false;
  }
  atomic_store(child, pid);
  bool written = write_all(j->source[1], source, strlen(source)); /* SIGPIPE is blocked on workers */
  close(j->source[1]);
  bool ended = wait_for(pid, &status);
  atomic_store(child, 0);
  if (ended && written) return true;
  first_message(j, status, why, why_size);
  return false;
}

bool compile_source(const compiler *c, const char *source, wk__cpu_level level, _Atomic pid_t *child, object_bytes *out,
                    char *why, size_t why_size) {
  enum { MOST = 256 << 20 };
  job j;
  *out = (object_bytes){0};
  if (!make_folder(&j)) {
    snprintf(why, why_size, "no folder for temporary files: %s", strerror(errno));
    return false;
  }
  bool ok = pipe2(j.source, O_CLOEXEC) == 0;
  if (!ok) snprintf(why, why_size, "no pipe: %s", strerror(errno));
  ok = ok && run_compiler(c, &j, source, level, child, why, why_size);
  if (ok) {
    int fd = open(j.output, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ok = fd >= 0 && read_file(fd, MOST, out) && out->size > 0;
    if (fd >= 0) close(fd);
    if (!ok) snprintf(why, why_size, "the C compiler made nothing that can be read");
  }
  remove_folder(&j);
  return ok;
}
