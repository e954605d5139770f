/* cpu/native/native: the compiler found or missing, the cache on disk (hits, every kind of damage, foreign files, two
 * processes, processes that are killed, full disks), groups that are released at any time, forks. Launches must give
 * the same result whatever happens. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/keyed_hash.h"
#include "codegen/codegen.h"
#include "cpu/native/native.h"
#include "cpu/test_switches.h"

static char folder[64], cache_folder[80];
static wk__nest *nest;
static wk__program *program;
static wk__shape_env *env;

static const char text[] =
    "nest free (i0 < s0_0)\nbuffer 0: float32[1]\nbuffer 1: float32[1] written\nparams 1\n"
    "%1 = load float32 0[i0]\n%2 = param float32 0\n%3 = mul float32 %1 %2\nstore 1[i0] %3\n";

static void remove_all(const char *path) {
  DIR *list = opendir(path);
  for (struct dirent *entry; list && (entry = readdir(list));) {
    char name[400];
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
    if (unlink(name) != 0) remove_all(name);
  }
  if (list) closedir(list);
  rmdir(path);
}

static int set_up(void **state) {
  (void)state;
  strcpy(folder, "/tmp/wick-test-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  snprintf(cache_folder, sizeof cache_folder, "%s/cache", folder);
  setenv("WICK_CACHE_DIR", cache_folder, 1);
  unsetenv("WICK_CC");
  wk__native_reset();
  env = wk__shape_env_create();
  wk__shape_env_set_current(env);
  nest = wk__nest_parse(text);
  program = nest ? wk__program_create(nest) : NULL;
  return program ? 0 : -1;
}

static int tear_down(void **state) {
  (void)state;
  wk__program_release(program);
  wk__nest_release(nest);
  wk__shape_env_set_current(NULL);
  wk__shape_env_release(env);
  remove_all(folder);
  return 0;
}

/* Tier 0 or tier 1, the product is the product. */
static bool run_natively(void) {
  enum { N = 100 };
  float x[N], y[N];
  int64_t size = N, stride = 1;
  wk__scalar params[1] = {{WK__FLOAT_KIND, .d = 3}};
  wk__launch l = {.params = params, .ndim = 1, .sizes = &size};
  for (int i = 0; i < N; i++) x[i] = (float)i, y[i] = -1;
  l.buffers[0] = (wk__launch_buffer){x, NULL, &stride};
  l.buffers[1] = (wk__launch_buffer){y, NULL, &stride};
  int64_t runs = wk__native_runs;
  assert_int_equal(wk__program_run(program, &l), WK_OK);
  for (int i = 0; i < N; i++) assert_true(y[i] == 3 * x[i]);
  return wk__native_runs > runs;
}

typedef struct outcome {
  bool ready, from_cache, native;
  int warnings;
} outcome;

static outcome compile_as(const char *name) {
  wk__code_source kernel = {.nest = nest, .name = name, .code = wk__code_of(program)};
  wk__native_group *group = wk__native_improve(&kernel, 1);
  assert_non_null(group);
  outcome o = {.ready = wk__native_group_wait(group) == WK__CODE_READY};
  o.from_cache = o.ready && wk__native_group_from_cache(group);
  o.native = run_natively();
  o.warnings = wk__native_warnings();
  assert_int_equal(o.native, o.ready);
  wk__native_group_release(group);
  assert_false(run_natively());
  return o;
}
static outcome compile(void) { return compile_as("product"); }

/* The path of the one object, which is larger than what is remembered of its kernels; "" when there is none. */
static void find_entry(char *out, size_t size) {
  DIR *list = opendir(cache_folder);
  off_t largest = -1;
  struct stat s;
  *out = 0;
  for (struct dirent *entry; list && (entry = readdir(list));) {
    if (!strstr(entry->d_name, ".so") || fstatat(dirfd(list), entry->d_name, &s, 0) != 0 || s.st_size <= largest)
      continue;
    largest = s.st_size;
    snprintf(out, size, "%s/%s", cache_folder, entry->d_name);
  }
  if (list) closedir(list);
}

static int count_files(const char *prefix) {
  int count = 0;
  DIR *list = opendir(cache_folder);
  for (struct dirent *entry; list && (entry = readdir(list));)
    count += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
  if (list) closedir(list);
  return count;
}

static mode_t mode_of(const char *path) {
  struct stat s;
  return stat(path, &s) == 0 ? s.st_mode & 07777 : 0;
}

/* ---- hash ---- */

static void the_hash_is_blake2s(void **state) {
  (void)state;
  static const uint8_t of_abc[32] = {0x50, 0x8c, 0x5e, 0x8c, 0x32, 0x7c, 0x14, 0xe2, 0xe1, 0xa7, 0x2b,
                                     0xa3, 0x4e, 0xeb, 0x45, 0x2f, 0x37, 0x45, 0x8b, 0x20, 0x9e, 0xd6,
                                     0x3a, 0x29, 0x4d, 0x99, 0x9b, 0x4c, 0x86, 0x67, 0x59, 0x82};
  uint8_t out[32], parts[32];
  wk__hasher h;
  wk__hasher_start(&h, NULL, 0);
  wk__hasher_add(&h, "abc", 3);
  wk__hasher_finish(&h, out);
  assert_memory_equal(out, of_abc, 32);
  char data[300];
  memset(data, 7, sizeof data);
  for (size_t cut = 0; cut < sizeof data; cut += 13) {
    wk__hasher_start(&h, (const uint8_t *)"key", 3);
    wk__hasher_add(&h, data, sizeof data);
    wk__hasher_finish(&h, out);
    wk__hasher_start(&h, (const uint8_t *)"key", 3);
    wk__hasher_add(&h, data, cut);
    wk__hasher_add(&h, data + cut, sizeof data - cut);
    wk__hasher_finish(&h, parts);
    assert_memory_equal(out, parts, 32);
  }
}

/* ---- hits and misses ---- */

static void a_second_compile_is_a_hit(void **state) {
  (void)state;
  char entry[400], key[120];
  outcome o = compile();
  assert_true(o.ready && o.native && !o.from_cache);
  find_entry(entry, sizeof entry);
  snprintf(key, sizeof key, "%s/key", cache_folder);
  assert_int_equal(mode_of(cache_folder), 0700);
  assert_int_equal(mode_of(key), 0600);
  assert_int_equal(mode_of(entry), 0600);
  wk__native_reset();
  o = compile();
  assert_true(o.ready && o.native && o.from_cache && o.warnings == 0);
  assert_true(compile_as("another name is the same nest").from_cache);
  setenv("WICK_CC", "cc -DANOTHER_COMPILER", 1);
  wk__native_reset();
  assert_false(compile().from_cache);
  wk__cpu_level level = wk__cpu_level_get();
  if (level > WK__CPU_PORTABLE) {
    assert_int_equal(wk__cpu_level_set(WK__CPU_PORTABLE), WK_OK);
    assert_false(compile().from_cache);
    assert_int_equal(wk__cpu_level_set(level), WK_OK);
  }
  assert_int_equal(count_files("new-"), 0);
}

/* Grows the table of variables, so that it moves, and shrinks it. */
static void change_environment(void) {
  char name[40];
  for (int k = 0; k < 2000; k++) {
    snprintf(name, sizeof name, "WICK_TEST_%d", k % 1000);
    if (k < 1000)
      setenv(name, "text", 1);
    else
      unsetenv(name);
  }
}

/* Where the program computes on all cores a compiler runs when one of them has nothing else to do. It may get no time
 * at all that way: then another one takes its place, which does not yield. */
static void a_compiler_that_gets_no_time_is_replaced(void **state) {
  (void)state;
  char script[400];
  snprintf(script, sizeof script, "%s/cc", folder);
  FILE *f = fopen(script, "w");
  assert_non_null(f);
  /* field 41: the policy, 5 is SCHED_IDLE; the name, field 2, is "(cc)" */
  fprintf(f,
          "#!/bin/sh\nsleep 0.3\nset -- $(cat /proc/$$/stat) \"$@\"\npolicy=${41}\nshift 52\n"
          "[ $policy = 5 ] && exec sleep 100\nexec cc \"$@\"\n");
  fclose(f);
  assert_int_equal(chmod(script, 0700), 0);
  setenv("WICK_CC", script, 1);
  wk__native_reset();
  int threads = wk_get_num_threads();
  assert_int_equal(wk_set_num_threads((int)sysconf(_SC_NPROCESSORS_ONLN)), WK_OK);
  wk__code_source kernel = {.nest = nest, .name = "starved", .code = wk__code_of(program)};
  wk__native_group *group = wk__native_improve(&kernel, 1);
  assert_non_null(group);
  while (wk__native_group_state(group) == WK__CODE_PENDING) usleep(10000); /* who waits is yielded to no more */
  assert_int_equal(wk__native_group_state(group), WK__CODE_READY);
  wk__native_group_release(group);
  assert_int_equal(wk_set_num_threads(threads), WK_OK);
  unsetenv("WICK_CC");
  wk__native_reset();
}

/* The compiler gets the environment of the first submission; a program that changes its own meanwhile has no effect.
 */
static void the_environment_may_change_meanwhile(void **state) {
  (void)state;
  char seen[300], script[400];
  snprintf(seen, sizeof seen, "%s/seen", folder);
  snprintf(script, sizeof script, "%s/cc", folder);
  FILE *f = fopen(script, "w");
  assert_non_null(f);
  fprintf(f, "#!/bin/sh\necho \"$WICK_TEST_MARK\" >> %s\nexec cc \"$@\"\n", seen);
  fclose(f);
  assert_int_equal(chmod(script, 0700), 0);
  setenv("WICK_CC", script, 1);
  setenv("WICK_CACHE_DIR", "", 1);
  setenv("WICK_TEST_MARK", "before", 1);
  wk__native_reset();
  for (int k = 0; k < 2; k++) {
    wk__code_source kernel = {.nest = nest, .name = k ? "second" : "first", .code = wk__code_of(program)};
    wk__native_group *group = wk__native_improve(&kernel, 1);
    assert_non_null(group);
    setenv("WICK_TEST_MARK", "after", 1);
    while (wk__native_group_state(group) == WK__CODE_PENDING) change_environment();
    assert_int_equal(wk__native_group_wait(group), WK__CODE_READY);
    wk__native_group_release(group);
  }
  char text[100] = "";
  f = fopen(seen, "r");
  assert_non_null(f);
  size_t length = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[length] = 0;
  assert_non_null(strstr(text, "before\nbefore\n")); /* more often where one got no time */
  assert_null(strstr(text, "after"));
}

static void an_empty_setting_means_no_cache(void **state) {
  (void)state;
  setenv("WICK_CACHE_DIR", "", 1);
  wk__native_reset();
  for (int k = 0; k < 2; k++) {
    outcome o = compile();
    assert_true(o.ready && !o.from_cache && o.warnings == 0);
  }
}

/* ---- size ---- */

static int64_t bytes_of_entries(void) {
  int64_t total = 0;
  DIR *list = opendir(cache_folder);
  struct stat s;
  for (struct dirent *entry; list && (entry = readdir(list));)
    if (strstr(entry->d_name, ".so") && fstatat(dirfd(list), entry->d_name, &s, 0) == 0) total += s.st_size;
  if (list) closedir(list);
  return total;
}

static time_t last_use(const char *path) {
  struct stat s;
  assert_int_equal(stat(path, &s), 0);
  return s.st_mtime;
}

/* What was used longest ago goes; a use is noted. */
static void the_folder_keeps_its_size(void **state) {
  (void)state;
  enum { FACTS = 3000, SIZE = 1000 };
  char entry[400], fact[SIZE] = {0};
  const struct timespec last_week[2] = {{time(NULL) - 604800, 0}, {time(NULL) - 604800, 0}};
  setenv("WICK_CACHE_LIMIT", "0.25", 1); /* MiB */
  wk__native_reset();
  wk__native_remember("old", 3, fact, SIZE);
  find_entry(entry, sizeof entry);
  assert_int_equal(utimensat(AT_FDCWD, entry, last_week, 0), 0);
  assert_true(wk__native_recall("old", 3, fact, SIZE));
  assert_true(last_use(entry) > last_week[0].tv_sec + 600000);
  assert_int_equal(utimensat(AT_FDCWD, entry, last_week, 0), 0);
  for (int i = 0; i < FACTS; i++) wk__native_remember(&i, sizeof i, fact, SIZE);
  assert_in_range(bytes_of_entries(), 190 << 10, 1 << 20);
  assert_false(wk__native_recall("old", 3, fact, SIZE));
  assert_true(wk__native_recall(&(int){FACTS - 1}, sizeof(int), fact, SIZE));
  unsetenv("WICK_CACHE_LIMIT");
}

/* ---- damage ---- */

static void flip(const char *path, off_t at) {
  char byte;
  int fd = open(path, O_RDWR);
  assert_true(fd >= 0 && pread(fd, &byte, 1, at) == 1);
  byte ^= 0x40;
  assert_int_equal(pwrite(fd, &byte, 1, at), 1);
  close(fd);
}

static void assert_a_miss(const char *what) {
  wk__native_reset();
  outcome o = compile();
  if (!o.ready || !o.native || o.from_cache) fail_msg("%s", what);
}

/* A softmax of elementary functions, as an object of this level. */
static int64_t bytes_at(wk__cpu_level level) {
  static const char many[] =
      "nest (i0 < s0_0; r0 < s0_1)\nbuffer 0: float32[2]\nbuffer 1: float32[2] written\n%1 = load float32 0[i0, r0]\n"
      "%2 = tanh float32 %1\n%3 = sigmoid float32 %2\n%4 = erf float32 %3\n%5 = log float32 %4\n"
      "%6 = reduce_max float32 %5\n%7 = sub float32 %5 %6\n%8 = exp float32 %7\n%9 = reduce_sum float32 %8\n"
      "%10 = div float32 %8 %9\nstore 1[i0, r0] %10\n";
  assert_int_equal(wk__cpu_level_set(level), WK_OK);
  wk__nest *parsed = wk__nest_parse(many);
  wk__program *made = parsed ? wk__program_create(parsed) : NULL;
  assert_non_null(made);
  wk__code_source kernel = {.nest = parsed, .name = "many", .code = wk__code_of(made)};
  int64_t before = bytes_of_entries();
  wk__native_group *group = wk__native_improve(&kernel, 1);
  assert_int_equal(wk__native_group_wait(group), WK__CODE_READY);
  wk__native_group_release(group);
  wk__program_release(made);
  wk__nest_release(parsed);
  return bytes_of_entries() - before;
}

/* What the C compiler makes is what it takes its time for: a level without fused multiply-adds has few copies of them.
 */
static void no_level_has_much_larger_code(void **state) {
  (void)state;
  if (wk__cpu_level_max() < WK__CPU_AVX2) skip();
  int64_t portable = bytes_at(WK__CPU_PORTABLE), avx2 = bytes_at(WK__CPU_AVX2);
  assert_int_equal(wk__cpu_level_set(wk__cpu_level_max()), WK_OK);
  print_message("portable %lld bytes, AVX2 %lld\n", (long long)portable, (long long)avx2);
  assert_in_range(portable, 1, 2 * avx2);
}

static void a_damaged_entry_is_a_miss(void **state) {
  (void)state;
  char entry[400];
  struct stat s;
  compile();
  find_entry(entry, sizeof entry);
  assert_int_equal(stat(entry, &s), 0);
  for (int k = 0; k <= 12; k++) { /* headers, code, tables, the mark and the hash behind them */
    flip(entry, (s.st_size - 1) * k / 12);
    assert_a_miss("a changed byte");
  }
  static const int ends[] = {1, 8, 31, 32, 39, 40, 41};
  for (size_t k = 0; k < WK_COUNT(ends); k++) {
    flip(entry, s.st_size - ends[k]);
    assert_a_miss("a changed byte of the trailer");
    assert_int_equal(truncate(entry, s.st_size - ends[k]), 0);
    assert_a_miss("a truncated entry");
  }
  assert_int_equal(truncate(entry, 0), 0);
  assert_a_miss("an empty entry");
  assert_int_equal(truncate(entry, s.st_size + 100), 0);
  assert_a_miss("a longer entry");
  wk__native_reset();
  assert_true(compile().from_cache); /* each miss wrote it again */
}

static void what_others_could_write_is_a_miss(void **state) {
  (void)state;
  char entry[400], other[420];
  compile();
  find_entry(entry, sizeof entry);
  assert_int_equal(chmod(entry, 0666), 0);
  assert_a_miss("writable by others");
  find_entry(entry, sizeof entry);
  snprintf(other, sizeof other, "%s/elsewhere", folder);
  assert_int_equal(rename(entry, other), 0);
  assert_int_equal(symlink(other, entry), 0);
  assert_a_miss("a link");
  unlink(entry);
  assert_int_equal(mkdir(entry, 0700), 0);
  assert_a_miss("a folder");
  rmdir(entry);
  assert_int_equal(mkfifo(entry, 0600), 0);
  assert_a_miss("a pipe");
  if (geteuid() == 0) {
    wk__native_reset();
    assert_true(compile().from_cache);
    assert_int_equal(chown(entry, 12345, 12345), 0);
    assert_a_miss("somebody else's");
  }
}

/* An entry of one name does not pass for another, nor with another key. */
static void entries_do_not_change_places(void **state) {
  (void)state;
  char first[400], second[400], key[120];
  compile();
  find_entry(first, sizeof first);
  snprintf(second, sizeof second, "%s/first", folder);
  assert_int_equal(rename(first, second), 0);
  compile_as("second");
  char now[400];
  find_entry(now, sizeof now);
  assert_int_equal(rename(now, first), 0);
  assert_a_miss("another unit's entry");
  snprintf(key, sizeof key, "%s/key", cache_folder);
  flip(key, 5);
  assert_a_miss("another key");
  assert_int_equal(truncate(key, 7), 0);
  assert_a_miss("a short key");
  assert_int_equal(chmod(key, 0644), 0);
  assert_a_miss("a key that others can read");
  wk__native_reset();
  assert_true(compile().from_cache);
}

static void a_folder_of_others_is_not_used(void **state) {
  (void)state;
  assert_int_equal(mkdir(cache_folder, 0755), 0);
  assert_int_equal(chmod(cache_folder, 0755), 0);
  wk__native_reset();
  outcome o = compile();
  assert_true(o.ready && !o.from_cache && o.warnings == 1);
  assert_int_equal(count_files("key"), 0);
  assert_int_equal(rmdir(cache_folder), 0);
  assert_int_equal(symlink(folder, cache_folder), 0);
  wk__native_reset();
  o = compile();
  assert_true(o.ready && !o.from_cache && o.warnings == 1);
}

/* ---- no compiler ---- */

static void without_a_compiler_tier_0_goes_on(void **state) {
  (void)state;
  static const char *const wrong[] = {"/nowhere/cc",        "false",  "no-such-compiler -O1", "/etc/passwd", "true",
                                      "cc -no-such-option", "kill-me"};
  char script[120];
  snprintf(script, sizeof script, "%s/kill-me", folder);
  FILE *f = fopen(script, "w");
  fputs("#!/bin/sh\nkill -9 $$\n", f);
  fclose(f);
  chmod(script, 0700);
  for (size_t k = 0; k < WK_COUNT(wrong); k++) {
    setenv("WICK_CC", strcmp(wrong[k], "kill-me") == 0 ? script : wrong[k], 1);
    wk__native_reset();
    for (int again = 0; again < 2; again++) {
      outcome o = compile();
      if (o.ready || o.warnings != 1) fail_msg("WICK_CC=%s", wrong[k]);
    }
  }
  char path[1000];
  snprintf(path, sizeof path, "%s", getenv("PATH"));
  unsetenv("WICK_CC");
  setenv("PATH", folder, 1);
  wk__native_reset();
  outcome o = compile();
  setenv("PATH", path, 1);
  assert_true(!o.ready && o.warnings == 1);
}

/* ---- processes ---- */

static int in_child(void (*what)(void)) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    what();
    _exit(0);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

/* Nothing may grow beyond some bytes: what a full disk looks like to us and to the compiler. */
static void compile_on_a_full_disk(void) {
  static const rlim_t limits[] = {0, 100, 4000, 12000};
  signal(SIGXFSZ, SIG_IGN);
  for (size_t k = 0; k < WK_COUNT(limits); k++) {
    struct rlimit limit = {limits[k], RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &limit);
    wk__native_reset();
    outcome o = compile();
    if (o.from_cache) _exit(1);
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
}

static void a_full_disk_leaves_no_wrong_entry(void **state) {
  (void)state;
  assert_int_equal(in_child(compile_on_a_full_disk), 0);
  wk__native_reset();
  outcome o = compile();
  assert_true(o.ready && o.warnings == 0);
}

static void compile_again_and_again(void) {
  for (int k = 0;; k++) {
    char name[40];
    snprintf(name, sizeof name, "kill %d", k % 3);
    compile_as(name);
  }
}

static void killed_processes_leave_no_wrong_entry(void **state) {
  (void)state;
  for (int round = 0; round < 8; round++) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) compile_again_and_again();
    usleep((useconds_t)(3000 + 31000 * round));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    wk__native_reset();
    for (int k = 0; k < 3; k++) {
      char name[40];
      snprintf(name, sizeof name, "kill %d", k);
      outcome o = compile_as(name);
      assert_true(o.ready && o.native && o.warnings == 0);
    }
  }
}

static void compile_three(void) {
  for (int k = 0; k < 3; k++) {
    char name[40];
    snprintf(name, sizeof name, "shared %d", k);
    outcome o = compile_as(name);
    if (!o.ready || !o.native || o.warnings) _exit(1);
  }
}

static void processes_share_a_cache(void **state) {
  (void)state;
  enum { PROCESSES = 4 };
  pid_t children[PROCESSES];
  fflush(NULL);
  for (int k = 0; k < PROCESSES; k++)
    if ((children[k] = fork()) == 0) {
      compile_three();
      _exit(0);
    }
  for (int k = 0; k < PROCESSES; k++) {
    int status;
    assert_int_equal(waitpid(children[k], &status, 0), children[k]);
    assert_int_equal(status, 0);
  }
  wk__native_reset();
  assert_true(compile_as("shared 2").from_cache);
  assert_int_equal(count_files("new-"), 0);
}

/* ---- groups ---- */

static void groups_may_be_released_at_any_time(void **state) {
  (void)state;
  for (int k = 0; k < 12; k++) {
    char name[40];
    snprintf(name, sizeof name, "released %d", k);
    wk__code_source kernel = {.nest = nest, .name = name, .code = wk__code_of(program)};
    wk__native_group *group = wk__native_improve(&kernel, 1);
    assert_non_null(group);
    usleep((useconds_t)(k % 6 * 12000));
    run_natively();
    wk__native_group_release(group);
    assert_false(run_natively());
  }
  wk__native_reset();
  assert_int_equal(wk__native_warnings(), 0);
}

static wk__native_group *forked_group;

static void wait_in_child(void) {
  if (wk__native_group_wait(forked_group) != WK__CODE_READY || !run_natively()) _exit(1);
  wk__native_group_release(forked_group);
  if (!compile_as("in the child").ready) _exit(2);
}

/* The group is pending, or just being compiled, when the process forks: both sides get it. */
static void a_fork_keeps_pending_groups(void **state) {
  (void)state;
  for (int k = 0; k < 4; k++) {
    char name[40];
    snprintf(name, sizeof name, "forked %d", k);
    wk__code_source kernel = {.nest = nest, .name = name, .code = wk__code_of(program)};
    forked_group = wk__native_improve(&kernel, 1);
    usleep((useconds_t)(k * 5000));
    assert_int_equal(in_child(wait_in_child), 0);
    assert_int_equal(wk__native_group_wait(forked_group), WK__CODE_READY);
    assert_true(run_natively());
    wk__native_group_release(forked_group);
  }
}

static void code_is_never_writable_and_executable(void **state) {
  (void)state;
  wk__code_source kernel = {.nest = nest, .code = wk__code_of(program)};
  wk__native_group *group = wk__native_improve(&kernel, 1);
  assert_int_equal(wk__native_group_wait(group), WK__CODE_READY);
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[600];
  int ours = 0;
  while (maps && fgets(line, sizeof line, maps)) {
    ours += strstr(line, "wick-kernels") != NULL;
    assert_null(strstr(line, " rwx"));
  }
  if (maps) fclose(maps);
  assert_true(ours > 0);
  wk__native_group_release(group);
}

/* ---- memory ---- */

/* The n-th allocation fails, or the n-th write: no group, a failed one or a ready one, and nothing leaks. */
static void failures_of_memory_leave_tier_0(void **state) {
  (void)state;
  run_natively();
  compile();
  wk__native_reset();
  int64_t live = wk__live_allocations();
  for (int n = 1; n < 60; n++) {
    char name[40];
    snprintf(name, sizeof name, "fault %d", n % 2 ? n : 0); /* odd ones are compiled, even ones may be found */
    wk__code_source kernel = {.nest = nest, .name = name, .code = wk__code_of(program)};
    wk__fault_arm(n);
    wk__native_group *group = wk__native_improve(&kernel, 1);
    bool ready = group && wk__native_group_wait(group) == WK__CODE_READY;
    wk__fault_arm(0);
    assert_int_equal(run_natively(), ready);
    wk__native_group_release(group);
    wk__native_reset();
    assert_int_equal(wk__live_allocations(), live);
  }
}

/* ---- sanitizers ---- */

#ifdef WK_SANITIZERS
/* A launch that says more elements than there are. */
static void read_too_far(void) {
  enum { N = 100, MORE = 64 };
  float *x = malloc(N * sizeof *x), *y = malloc((N + MORE) * sizeof *y);
  int64_t size = N + MORE, stride = 1;
  wk__scalar params[1] = {{WK__FLOAT_KIND, .d = 3}};
  wk__launch l = {.params = params, .ndim = 1, .sizes = &size};
  l.buffers[0] = (wk__launch_buffer){x, NULL, &stride};
  l.buffers[1] = (wk__launch_buffer){y, NULL, &stride};
  memset(x, 0, N * sizeof *x);
  if (!freopen("/dev/null", "w", stderr)) _exit(0);
  if (wk__program_run(program, &l) != WK_OK) _exit(0);
  _exit(0);
}

static void compiled_code_is_checked_too(void **state) {
  (void)state;
  wk__code_source kernel = {.nest = nest, .name = "checked", .code = wk__code_of(program)};
  wk__native_group *group = wk__native_improve(&kernel, 1);
  assert_int_equal(wk__native_group_wait(group), WK__CODE_READY);
  assert_true(run_natively());
  assert_int_not_equal(in_child(read_too_far), 0);
  wk__native_group_release(group);
}
#endif

/* ---- nests that were made native when the library was built ---- */

static void run_softmax(const wk__program *softmax, float *y) {
  float x[6] = {1, 2, 3, -1, 0, 5};
  int64_t sizes[2] = {2, 3}, strides[2] = {3, 1};
  wk__launch l = {.ndim = 2, .sizes = sizes};
  l.buffers[0] = (wk__launch_buffer){x, sizes, strides};
  l.buffers[1] = (wk__launch_buffer){y, sizes, strides};
  assert_int_equal(wk__program_run(softmax, &l), WK_OK);
}

/* Native from the first run, with tier 0's bits; other levels than the one it was made at are tier 0's. */
static void the_most_used_nests_are_native_from_the_start(void **state) {
  (void)state;
  static const char softmax_text[] =
      "nest (i0 < s0_0; r0 < s0_1)\nbuffer 0: float32[2]\nbuffer 1: float32[2] written\n"
      "%1 = load float32 0[i0, r0]\n%2 = reduce_max float32 %1\n%3 = sub float32 %1 %2\n%4 = exp float32 %3\n"
      "%5 = reduce_sum float32 %4\n%6 = reciprocal float32 %5\n%7 = mul float32 %4 %6\nstore 1[i0, r0] %7\n";
  wk__nest *softmax_nest = wk__nest_parse(softmax_text);
  assert_non_null(softmax_nest);
  for (wk__cpu_level level = WK__CPU_PORTABLE; level <= wk__cpu_level_max(); level++) {
    float native[6], interpreted[6];
    assert_int_equal(wk__cpu_level_set(level), WK_OK);
    wk__program *softmax = wk__program_create(softmax_nest);
    assert_non_null(softmax);
    int64_t runs = wk__native_runs;
    run_softmax(softmax, native);
    assert_int_equal(wk__native_runs, runs + 1);
    assert_int_equal(wk__cpu_level_set(level == WK__CPU_PORTABLE ? wk__cpu_level_max() : WK__CPU_PORTABLE), WK_OK);
    runs = wk__native_runs;
    run_softmax(softmax, interpreted);
    if (wk__cpu_level_max() != WK__CPU_PORTABLE) assert_int_equal(wk__native_runs, runs);
    assert_memory_equal(native, interpreted, sizeof native);
    wk__program_release(softmax);
  }
  assert_int_equal(wk__cpu_level_set(wk__cpu_level_max()), WK_OK);
  wk__nest_release(softmax_nest);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
  wk__program_use_short_way(false); /* native code runs small launches, too */
  const struct CMUnitTest tests[] = {
      TEST(the_hash_is_blake2s),
      TEST(the_most_used_nests_are_native_from_the_start),
      TEST(a_second_compile_is_a_hit),
      TEST(a_compiler_that_gets_no_time_is_replaced),
      TEST(the_environment_may_change_meanwhile),
      TEST(an_empty_setting_means_no_cache),
      TEST(the_folder_keeps_its_size),
      TEST(no_level_has_much_larger_code),
      TEST(a_damaged_entry_is_a_miss),
      TEST(what_others_could_write_is_a_miss),
      TEST(entries_do_not_change_places),
      TEST(a_folder_of_others_is_not_used),
      TEST(without_a_compiler_tier_0_goes_on),
      TEST(a_full_disk_leaves_no_wrong_entry),
      TEST(killed_processes_leave_no_wrong_entry),
      TEST(processes_share_a_cache),
      TEST(groups_may_be_released_at_any_time),
      TEST(a_fork_keeps_pending_groups),
      TEST(code_is_never_writable_and_executable),
      TEST(failures_of_memory_leave_tier_0),
#ifdef WK_SANITIZERS
      TEST(compiled_code_is_checked_too),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
