/* The system's C compiler: which one, with which options, and running it.
 *
 * The source goes through a pipe, the shared object comes back through a private folder in memory where there is one,
 * so nothing of a killed process is left but files there. A compiler that hangs is ended after a while, with all that
 * it started. posix_spawn, because a fork of a process with much memory takes longer than compiling. The driver and a
 * shared object rather than `cc1 | as` and a loader of our own: that would save some 15 ms a unit in the background,
 * and know every relocation of every machine. Tests: tests/c/test_native.c. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cpu/native/native_internal.h"

/* Bits first: no contraction, nothing reassociated. -O1 with the dearer optimisations is as fast as -O2, and in an
 * order that interleaves what the writer has put side by side, faster. */
static const char *const options[] = {"-x",
                                      "c",
                                      "-std=gnu11",
                                      "-O1",
                                      "-fexpensive-optimizations",
                                      "-fschedule-insns",
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
#ifdef WK_SANITIZERS
                                      "-fsanitize=" WK_SANITIZERS,
                                      "-fno-sanitize-recover=all",
#endif
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
static char *path_of(char *const *environment, const char *name) {
  if (strchr(name, '/')) return is_program(name) ? wk__strdup(name) : NULL;
  const char *path = environment_value(environment, "PATH");
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

bool find_compiler(compiler *c, char *const *environment, char *why, size_t why_size) {
  const char *wanted = environment_value(environment, "WICK_CC"), *const usual[] = {"cc", "gcc", "clang"};
  memset(c, 0, sizeof *c);
  bool given = wanted && *wanted;
  for (size_t k = 0; k < (given ? 1 : WK_COUNT(usual)); k++) {
    if (split_words(c, given ? wanted : usual[k]) && (c->path = path_of(environment, c->words[0]))) {
      c->environment = environment;
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

enum { LEFT_SECONDS = 3600 };

typedef struct job {
  char folder[300], output[320], messages[320];
  int source[2]; /* a pipe */
} job;

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place) {
  (void)status, (void)kind, (void)place;
  remove(path);
  return 0; /* what is still written to is taken the next time */
}

static void remove_tree(const char *path) { nftw(path, remove_entry, 4, FTW_DEPTH | FTW_PHYS); }

static const char memory_place[] = "/dev/shm";

/* Folders in memory of processes that were killed, by the process's number in the name. Not the newest: other
 * containers may show theirs there, too, and their numbers mean nothing to us. */
static void remove_left_behind(void) {
  DIR *list = opendir(memory_place);
  for (struct dirent *entry; list && (entry = readdir(list));) {
    char path[320];
    struct stat s;
    int process = 0, length = 0;
    if (sscanf(entry->d_name, "wick-%d-%*6[A-Za-z0-9]%n", &process, &length) != 1 || process <= 0) continue;
    if (!length || entry->d_name[length]) continue;
    if (fstatat(dirfd(list), entry->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(s.st_mode)) continue;
    bool dead = kill(process, 0) != 0 && errno == ESRCH;
    if (!dead || s.st_uid != geteuid() || s.st_mtime + LEFT_SECONDS > time(NULL)) continue;
    if ((size_t)snprintf(path, sizeof path, "%s/%s", memory_place, entry->d_name) < sizeof path) remove_tree(path);
  }
  if (list) closedir(list);
}

static atomic_flag looked_for_left = ATOMIC_FLAG_INIT;

/* In memory where the system has such a folder, else where temporary files go. */
static bool make_folder(const compiler *c, job *j) {
  const char *temporary = environment_value(c->environment, "TMPDIR");
  const char *const places[] = {memory_place, temporary && *temporary ? temporary : "/tmp", "/tmp"};
  if (!atomic_flag_test_and_set(&looked_for_left)) remove_left_behind();
  for (size_t k = 0; k < WK_COUNT(places); k++) {
    if (strlen(places[k]) > 250) continue;
    snprintf(j->folder, sizeof j->folder, "%s/wick-%d-XXXXXX", places[k], (int)getpid());
    if (!mkdtemp(j->folder)) continue;
    snprintf(j->output, sizeof j->output, "%s/unit.so", j->folder);
    snprintf(j->messages, sizeof j->messages, "%s/messages", j->folder);
    return true;
  }
  return false;
}

/* With what a compiler that was ended left there, folders too: what it had started may write for a moment yet. */
static void remove_folder(const job *j) {
  for (int attempt = 0; attempt < 100; attempt++) {
    remove_tree(j->folder);
    unlink(j->output); /* without descriptors there is no walk */
    unlink(j->messages);
    if (rmdir(j->folder) == 0 || errno != ENOTEMPTY) return;
    poll(NULL, 0, 10);
  }
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
static char **environment_for(const compiler *c, const job *j, char *temporary, size_t size) {
  size_t count = 0, kept = 0;
  while (c->environment[count]) count++;
  char **list = wk__alloc((count + 2) * sizeof *list);
  if (!list) return NULL;
  for (size_t k = 0; k < count; k++)
    if (strncmp(c->environment[k], "TMPDIR=", 7) != 0) list[kept++] = c->environment[k];
  snprintf(temporary, size, "TMPDIR=%s", j->folder);
  list[kept++] = temporary;
  list[kept] = NULL;
  return list;
}

static int spawn(const compiler *c, const job *j, wk__cpu_level level, pid_t *child) {
  const char *arguments[64];
  char temporary[320];
  char **environment = environment_for(c, j, temporary, sizeof temporary);
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
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  int error = posix_spawn(child, c->path, &files, &attributes, (char *const *)arguments, environment);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  wk__free(environment);
  return error;
}

/* ---- a time limit ---- */

/* YIELDS_MILLISECONDS: one that yields and is not done by then has got next to nothing of a core. Its priority cannot
 * be raised without rights, so it is ended and another one started. */
enum { LIMIT_SECONDS = 300, GRACE_MILLISECONDS = 1000, SLICE_MILLISECONDS = 100, YIELDS_MILLISECONDS = 3000 };

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int64_t limit(const compiler *c) {
  const char *text = environment_value(c->environment, "WICK_CC_LIMIT");
  double seconds = text ? strtod(text, NULL) : 0;
  return (int64_t)((seconds > 0 && seconds < 1e6 ? seconds : LIMIT_SECONDS) * 1000);
}

typedef struct watch {
  compiler_process *process;
  pid_t id;
  int64_t limit, deadline, asked; /* milliseconds; asked: when it was told to end; 0: not yet */
  int64_t patience;               /* until when it may yield; 0: it does not */
  bool late, starved;
} watch;

/* It is told to end when it is late or not wanted any more, and ended when that does not help. */
static void check_time(watch *w) {
  int64_t t = now();
  if (!w->asked && (t >= w->deadline || atomic_load(&w->process->unwanted))) {
    w->late = t >= w->deadline;
    w->asked = t;
    kill(-w->id, SIGTERM);
  } else if (!w->asked && w->patience && t >= w->patience) {
    w->starved = true;
    w->asked = t - GRACE_MILLISECONDS; /* it might not get to end itself */
  }
  if (w->asked && t >= w->asked + GRACE_MILLISECONDS) kill(-w->id, SIGKILL);
}

/* A compiler that does not read keeps the pipe full. */
static bool feed(watch *w, int fd, const char *source) {
  size_t size = strlen(source);
  if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0) return false;
  while (size && !w->asked) {
    ssize_t n = write(fd, source, size);
    if (n < 0 && errno == EAGAIN) {
      poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, SLICE_MILLISECONDS);
      check_time(w);
    } else if (n < 0 && errno != EINTR) {
      return false;
    } else if (n > 0) {
      source += n;
      size -= (size_t)n;
    }
  }
  return size == 0;
}

/* A moment, or until the process ends where the system can tell. */
static void pause_for(int process, int milliseconds) {
  poll(&(struct pollfd){.fd = process, .events = POLLIN}, process >= 0, process >= 0 ? milliseconds : 5);
}

/* True when it ended well, as far as can be known: a program that waits for all its children may have taken ours. */
static bool wait_for(watch *w, int *status) {
  int process = (int)syscall(SYS_pidfd_open, w->id, 0); /* -1 before Linux 5.3 */
  pid_t ended;
  *status = 0;
  while ((ended = waitpid(w->id, status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
    pause_for(process, SLICE_MILLISECONDS);
    check_time(w);
  }
  int error = errno;
  if (w->asked) kill(-w->id, SIGKILL); /* what it started and did not wait for */
  if (process >= 0) close(process);
  if (ended < 0) return error == ECHILD;
  return WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
}

void end_compiler(compiler_process *process) {
  atomic_store(&process->unwanted, true);
  pid_t id = atomic_load(&process->id);
  if (id > 0) kill(-id, SIGTERM);
}

static void first_message(const job *j, const watch *w, int status, char *why, size_t why_size) {
  char text[400] = "";
  int fd = open(j->messages, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  text[n > 0 ? n : 0] = 0;
  text[strcspn(text, "\n")] = 0;
  if (w->late)
    snprintf(why, why_size, "the C compiler took longer than %.3g seconds (WICK_CC_LIMIT)", (double)w->limit / 1000);
  else if (WIFSIGNALED(status))
    snprintf(why, why_size, "the C compiler was ended by signal %d", WTERMSIG(status));
  else
    snprintf(why, why_size, "the C compiler failed (status %d): %s", WEXITSTATUS(status), text);
}

/* False with *out_starved: it yielded all the time. */
static bool run_once(const compiler *c, job *j, const char *source, wk__cpu_level level, compiler_process *process,
                     bool *out_starved, char *why, size_t why_size) {
  watch w = {.process = process, .limit = limit(c)};
  bool yields = process->yields && !*out_starved;
  *out_starved = false;
  if (pipe2(j->source, O_CLOEXEC) != 0) {
    snprintf(why, why_size, "no pipe: %s", strerror(errno));
    return false;
  }
  w.deadline = now() + w.limit;
  w.patience = yields ? now() + YIELDS_MILLISECONDS : 0;
  int status, error = spawn(c, j, level, &w.id);
  close(j->source[0]);
  if (!error && yields) (void)sched_setscheduler(w.id, SCHED_IDLE, &(struct sched_param){0}); /* its children's, too */
  if (error) {
    close(j->source[1]);
    snprintf(why, why_size, "cannot start %.200s: %s", c->path, strerror(error));
    return false;
  }
  atomic_store(&process->id, w.id);
  bool written = feed(&w, j->source[1], source); /* SIGPIPE is blocked on workers */
  close(j->source[1]);
  bool ended = wait_for(&w, &status);
  atomic_store(&process->id, 0);
  if (ended && written) return true;
  *out_starved = w.starved;
  first_message(j, &w, status, why, why_size);
  return false;
}

static bool run_compiler(const compiler *c, job *j, const char *source, wk__cpu_level level, compiler_process *process,
                         char *why, size_t why_size) {
  bool starved = false;
  if (run_once(c, j, source, level, process, &starved, why, why_size)) return true;
  return starved && run_once(c, j, source, level, process, &starved, why, why_size);
}

bool compile_source(const compiler *c, const char *source, wk__cpu_level level, compiler_process *process,
                    object_bytes *out, char *why, size_t why_size) {
  enum { MOST = 256 << 20 };
  job j;
  *out = (object_bytes){0};
  if (!make_folder(c, &j)) {
    snprintf(why, why_size, "no folder for temporary files: %s", strerror(errno));
    return false;
  }
  bool ok = run_compiler(c, &j, source, level, process, why, why_size);
  if (ok) {
    int fd = open(j.output, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    ok = fd >= 0 && read_file(fd, MOST, out) && out->size > 0;
    if (fd >= 0) close(fd);
    if (!ok) snprintf(why, why_size, "the C compiler made nothing that can be read");
  }
  remove_folder(&j);
  return ok;
}
