/* The folder of compiled units. In: a name (hash of all that an object depends on). Out: bytes that we once wrote under
 * that name, or a miss.
 *
 * An entry is NAME.so: the object, a mark, and a keyed hash of name and object. The key is a file of 32 random bytes,
 * mode 0600, in the same folder. Folder, key and entries must be ours and writable by us alone, are opened without
 * following links, and everything is read whole before it is believed. Writing goes to a file of a name of its own that
 * is renamed when complete, so that two processes, or one that dies, do no harm. Tests: tests/c/test_native.c. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cpu/native/native_internal.h"

static const char mark[8] = {'w', 'i', 'c', 'k', '-', 's', 'o', '1'};

enum {
  TRAILER = sizeof mark + WK__HASH_BYTES,
  MOST_BYTES = 256 << 20,
  STALE_SECONDS = 3600, /* files of processes that died while writing */
  USED_SECONDS = 86400, /* how exactly it is known when an entry was used */
  LIMIT_MIB = 1024,
  NAME_SIZE = 2 * WK__HASH_BYTES + 32,
};

/* ---- files ---- */

bool write_all(int fd, const void *data, size_t size) {
  const char *p = data;
  if (wk__fault_now()) {
    errno = ENOSPC;
    return false;
  }
  while (size) {
    ssize_t n = write(fd, p, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    p += n;
    size -= (size_t)n;
  }
  return true;
}

bool read_file(int fd, size_t most, object_bytes *out) {
  struct stat s;
  *out = (object_bytes){0};
  if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || s.st_size < 0 || (size_t)s.st_size > most) return false;
  out->data = wk__alloc((size_t)s.st_size);
  if (!out->data) return false;
  while (out->size < (size_t)s.st_size) {
    ssize_t n = read(fd, out->data + out->size, (size_t)s.st_size - out->size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    out->size += (size_t)n;
  }
  if (out->size == (size_t)s.st_size) return true;
  wk__free(out->data);
  *out = (object_bytes){0};
  return false;
}

static bool is_ours(int fd, mode_t forbidden) {
  struct stat s;
  return fstat(fd, &s) == 0 && s.st_uid == geteuid() && (s.st_mode & forbidden) == 0;
}

static bool random_bytes(void *out, size_t size) { return getrandom(out, size, 0) == (ssize_t)size; }

/* A new file under a name that no other process or thread uses; *name says which. */
static int create_own(const cache *c, char *name, size_t size) {
  uint64_t number;
  if (!random_bytes(&number, sizeof number)) return -1;
  snprintf(name, size, "new-%016llx", (unsigned long long)number);
  return openat(c->folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* ---- the folder ---- */

static bool folder_path(char *const *environment, char *out, size_t size) {
  const char *own = environment_value(environment, "WICK_CACHE_DIR");
  const char *shared = environment_value(environment, "XDG_CACHE_HOME");
  const char *home = environment_value(environment, "HOME");
  int length = 0;
  if (own) /* also an empty one: no cache */
    length = snprintf(out, size, "%s", own);
  else if (shared && *shared == '/')
    length = snprintf(out, size, "%s/wick", shared);
  else if (home && *home == '/')
    length = snprintf(out, size, "%s/.cache/wick", home);
  return length > 0 && (size_t)length < size;
}

/* The folder and those above it. */
static void make_folders(char *path) {
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    mkdir(path, 0700);
    *slash = '/';
  }
  mkdir(path, 0700);
}

static DIR *list_folder(int folder) {
  int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *list = copy < 0 ? NULL : fdopendir(copy);
  if (!list && copy >= 0) close(copy);
  return list;
}

static void remove_stale(int folder) {
  DIR *list = list_folder(folder);
  for (struct dirent *entry; list && (entry = readdir(list));) {
    struct stat s;
    if (strncmp(entry->d_name, "new-", 4) == 0 && fstatat(folder, entry->d_name, &s, AT_SYMLINK_NOFOLLOW) == 0 &&
        s.st_mtime + STALE_SECONDS < time(NULL))
      unlinkat(folder, entry->d_name, 0);
  }
  if (list) closedir(list);
}

static int64_t limit_of(char *const *environment) {
  const char *text = environment_value(environment, "WICK_CACHE_LIMIT");
  double mib = text ? strtod(text, NULL) : 0;
  return (int64_t)((mib > 0 && mib < 1e9 ? mib : LIMIT_MIB) * (1 << 20));
}

/* ---- the key ---- */

static bool read_key(cache *c) {
  int fd = openat(c->folder, "key", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  object_bytes bytes = {0};
  bool ok = fd >= 0 && is_ours(fd, 0077) && read_file(fd, sizeof c->key, &bytes) && bytes.size == sizeof c->key;
  if (ok) memcpy(c->key, bytes.data, sizeof c->key);
  if (fd >= 0) close(fd);
  wk__free(bytes.data);
  return ok;
}

/* Two processes may make one at a time: the first stays (link does not replace), unless it is no key. */
static bool make_key(cache *c) {
  char name[64];
  uint8_t key[sizeof c->key];
  int fd = create_own(c, name, sizeof name);
  if (fd < 0) return false;
  bool ok = random_bytes(key, sizeof key) && write_all(fd, key, sizeof key);
  ok = close(fd) == 0 && ok;
  if (ok && linkat(c->folder, name, c->folder, "key", 0) != 0 && !read_key(c))
    ok = renameat(c->folder, name, c->folder, "key") == 0;
  unlinkat(c->folder, name, 0);
  return ok && read_key(c);
}

bool open_cache(cache *c, char *const *environment, char *why, size_t why_size) {
  char path[4096];
  *c = (cache){.folder = -1};
  if (!folder_path(environment, path, sizeof path)) return true;
  make_folders(path);
  c->folder = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (c->folder < 0)
    snprintf(why, why_size, "cannot open the cache folder %.200s: %s", path, strerror(errno));
  else if (!is_ours(c->folder, 0077))
    snprintf(why, why_size, "the cache folder %.200s is not this user's alone (mode 0700)", path);
  else if (!read_key(c) && !make_key(c))
    snprintf(why, why_size, "cannot keep a key in the cache folder %.200s: %s", path, strerror(errno));
  else {
    remove_stale(c->folder);
    c->most_bytes = limit_of(environment);
    return true;
  }
  close_cache(c);
  return false;
}

void close_cache(cache *c) {
  if (c->folder >= 0) close(c->folder);
  *c = (cache){.folder = -1};
}

/* ---- its size ---- */

typedef struct entry {
  char name[NAME_SIZE];
  int64_t size;
  time_t used;
} entry;

static int by_use(const void *a, const void *b) {
  time_t x = ((const entry *)a)->used, y = ((const entry *)b)->used;
  return (x > y) - (x < y);
}

/* How many there are; *out is owned. Without memory some are missing. */
static int64_t list_entries(const cache *c, entry **out) {
  DIR *list = list_folder(c->folder);
  int64_t count = 0, capacity = 0;
  struct stat s;
  *out = NULL;
  for (struct dirent *file; list && (file = readdir(list));) {
    size_t length = strlen(file->d_name);
    if (length < 3 || length >= NAME_SIZE || strcmp(file->d_name + length - 3, ".so") != 0) continue;
    if (fstatat(c->folder, file->d_name, &s, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (wk__grow(out, &capacity, count + 1, sizeof **out) != WK_OK) break;
    (*out)[count] = (entry){.size = s.st_size, .used = s.st_mtime};
    strcpy((*out)[count++].name, file->d_name);
  }
  if (list) closedir(list);
  return count;
}

/* Those that were used longest ago go, down to three quarters. One that a process reads just now it reads to its end.
 */
static void keep_in_bounds(const cache *c) {
  entry *entries;
  int64_t count = list_entries(c, &entries), total = 0;
  for (int64_t i = 0; i < count; i++) total += entries[i].size;
  if (total > c->most_bytes) qsort(entries, (size_t)count, sizeof *entries, by_use);
  int64_t wanted = total > c->most_bytes ? c->most_bytes - c->most_bytes / 4 : total;
  for (int64_t i = 0; i < count && total > wanted; i++) {
    unlinkat(c->folder, entries[i].name, 0);
    total -= entries[i].size;
  }
  wk__free(entries);
}

static void note_use(int fd) {
  struct stat s;
  if (fstat(fd, &s) == 0 && s.st_mtime + USED_SECONDS < time(NULL)) (void)futimens(fd, NULL);
}

/* ---- entries ---- */

static void entry_name(const uint8_t name[WK__HASH_BYTES], char *out) {
  for (int i = 0; i < WK__HASH_BYTES; i++) snprintf(out + 2 * i, 3, "%02x", name[i]);
  strcat(out, ".so");
}

static void authenticate(const cache *c, const uint8_t name[WK__HASH_BYTES], const void *object, size_t size,
                         uint8_t out[WK__HASH_BYTES]) {
  wk__hasher h;
  wk__hasher_start(&h, c->key, sizeof c->key);
  wk__hasher_add(&h, name, WK__HASH_BYTES);
  wk__hasher_add(&h, object, size);
  wk__hasher_finish(&h, out);
}

/* Takes the same time wherever they differ. */
static bool same_hash(const uint8_t *a, const uint8_t *b) {
  uint8_t differs = 0;
  for (int i = 0; i < WK__HASH_BYTES; i++) differs |= a[i] ^ b[i];
  return differs == 0;
}

static bool check_entry(const cache *c, const uint8_t name[WK__HASH_BYTES], object_bytes *bytes) {
  uint8_t expected[WK__HASH_BYTES];
  if (bytes->size <= TRAILER) return false;
  size_t size = bytes->size - TRAILER;
  if (memcmp(bytes->data + size, mark, sizeof mark) != 0) return false;
  authenticate(c, name, bytes->data, size, expected);
  if (!same_hash(expected, (const uint8_t *)bytes->data + size + sizeof mark)) return false;
  bytes->size = size;
  return true;
}

bool read_entry(const cache *c, const uint8_t name[WK__HASH_BYTES], object_bytes *out) {
  char file[NAME_SIZE];
  *out = (object_bytes){0};
  if (c->folder < 0) return false;
  entry_name(name, file);
  int fd = openat(c->folder, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;
  bool ok = is_ours(fd, 0022) && read_file(fd, MOST_BYTES, out) && check_entry(c, name, out);
  if (ok) note_use(fd);
  if (ok) note_entry(name);
  close(fd);
  if (ok) return true;
  wk__free(out->data);
  *out = (object_bytes){0};
  return false;
}

bool write_entry(const cache *c, const uint8_t name[WK__HASH_BYTES], const object_bytes *bytes) {
  char file[NAME_SIZE], own[64];
  uint8_t trailer[TRAILER];
  if (c->folder < 0) return false;
  int fd = create_own(c, own, sizeof own);
  if (fd < 0) return false;
  entry_name(name, file);
  memcpy(trailer, mark, sizeof mark);
  authenticate(c, name, bytes->data, bytes->size, trailer + sizeof mark);
  bool ok = write_all(fd, bytes->data, bytes->size) && write_all(fd, trailer, sizeof trailer);
  ok = close(fd) == 0 && ok;
  ok = ok && renameat(c->folder, own, c->folder, file) == 0;
  if (!ok) unlinkat(c->folder, own, 0);
  if (ok) note_entry(name);
  if (ok && name[0] == 0) keep_in_bounds(c); /* one in 256: names are hashes */
  return ok;
}
