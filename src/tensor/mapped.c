/* Mapped memory as storages.
 *
 * In: paths, descriptors, sizes. Out: storages whose context is a `mapping`, which ends with them. Invariant: a map of
 * no bytes is none, and `bytes` is NULL then. A file that another process cuts short while it is mapped kills ours, as
 * with any map. */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tensor/mapped.h"

typedef struct mapping {
  void *bytes;
  int64_t size;
  int descriptor; /* of shared memory, owned; -1 of a file */
  char path[];    /* of a file that is mapped shared; else "" */
} mapping;

static void mapping_release(void *context) {
  mapping *m = context;
  if (m->bytes) munmap(m->bytes, (size_t)m->size);
  if (m->descriptor >= 0) close(m->descriptor);
  wk__free(m);
}

static mapping *mapping_of(const wk_storage *s) { return s->release == mapping_release ? s->context : NULL; }

/* Takes the descriptor into the mapping where `keep` says so; the caller closes it otherwise, and on failure. */
static mapping *map(int descriptor, int64_t size, bool shared, bool keep, const char *path) {
  size_t length = strlen(path) + 1;
  mapping *m = wk__alloc(sizeof *m + length);
  if (!m) return NULL;
  *m = (mapping){.size = size, .descriptor = keep ? descriptor : -1};
  memcpy(m->path, path, length);
  if (!size) return m;
  void *bytes = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE, descriptor, 0);
  if (bytes != MAP_FAILED) {
    m->bytes = bytes;
    return m;
  }
  (void)wk_fail(WK_RUNTIME_ERROR, "unable to mmap %lld bytes from file <%s>: %s (%d)", (long long)size, path,
                strerror(errno), errno);
  wk__free(m);
  return NULL;
}

static wk_storage *storage_over(mapping *m) {
  if (!m) return NULL;
  wk_storage *s = wk__storage_from_memory(m->bytes, m->size, mapping_release, m);
  if (!s) mapping_release(m);
  return s;
}

/* ---- files ---- */

/* The number of bytes to map of an open file; -1 with an error. */
static int64_t size_to_map(int descriptor, const char *path, bool shared, int64_t bytes) {
  struct stat facts;
  if (fstat(descriptor, &facts) < 0) {
    (void)wk_fail(WK_RUNTIME_ERROR, "unable to stat the file <%s>: %s (%d)", path, strerror(errno), errno);
    return -1;
  }
  if (bytes <= facts.st_size) return bytes ? bytes : facts.st_size;
  if (!shared) {
    (void)wk_fail(WK_RUNTIME_ERROR, "file <%s> size <%lld> is smaller than the required mapping size <%lld>", path,
                  (long long)facts.st_size, (long long)bytes);
    return -1;
  }
  if (ftruncate(descriptor, bytes) == 0) return bytes;
  (void)wk_fail(WK_RUNTIME_ERROR, "unable to resize file <%s> to the right size: %s (%d)", path, strerror(errno),
                errno);
  return -1;
}

wk_storage *wk__storage_map_file(const char *path, bool shared, int64_t bytes) {
  if (bytes < 0) {
    (void)wk_fail(WK_RUNTIME_ERROR, "unable to mmap %lld bytes from file <%s>: %s (%d)", (long long)bytes, path,
                  strerror(ENOMEM), ENOMEM);
    return NULL;
  }
  int descriptor = open(path, (shared ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC, 0600);
  if (descriptor < 0) {
    (void)wk_fail(WK_RUNTIME_ERROR, "unable to open file <%s> in %s mode: %s (%d)", path,
                  shared ? "read-write" : "read-only", strerror(errno), errno);
    return NULL;
  }
  int64_t size = size_to_map(descriptor, path, shared, bytes);
  mapping *m = size < 0 ? NULL : map(descriptor, size, shared, false, path);
  if (m && !shared) m->path[0] = 0;
  close(descriptor);
  return storage_over(m);
}

/* ---- memory that processes share ---- */

static mapping *map_descriptor(int steal_descriptor, int64_t bytes) {
  if (steal_descriptor < 0) {
    (void)wk_fail(WK_RUNTIME_ERROR, "unable to open shared memory: %s (%d)", strerror(errno), errno);
    return NULL;
  }
  mapping *m = map(steal_descriptor, bytes, true, true, "");
  if (!m) close(steal_descriptor);
  return m;
}

static mapping *new_shared(int64_t bytes) {
  int descriptor = memfd_create("wick", MFD_CLOEXEC);
  if (descriptor >= 0 && ftruncate(descriptor, bytes) < 0) {
    (void)wk_fail(WK_RUNTIME_ERROR, "unable to make %lld bytes of shared memory: %s (%d)", (long long)bytes,
                  strerror(errno), errno);
    close(descriptor);
    return NULL;
  }
  return map_descriptor(descriptor, bytes);
}

wk_storage *wk__storage_create_shared(int64_t bytes) { return storage_over(new_shared(bytes)); }

wk_storage *wk__storage_map_descriptor(int descriptor, int64_t bytes) {
  struct stat facts;
  int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (own >= 0 && (fstat(own, &facts) < 0 || bytes < 0 || facts.st_size < bytes)) {
    close(own);
    (void)wk_fail(WK_RUNTIME_ERROR, "a descriptor does not have %lld bytes to share", (long long)bytes);
    return NULL;
  }
  return storage_over(map_descriptor(own, bytes));
}

wk_status wk__storage_share(wk_storage *s) {
  if (wk__storage_is_mapped(s)) return WK_OK;
  if (atomic_load(&s->pins))
    return wk_fail(WK_RUNTIME_ERROR, "memory that another library looks at cannot be moved to be shared");
  mapping *m = new_shared(s->bytes);
  if (!m) return wk_error_category();
  if (s->bytes && wk__storage_read(s, 0, s->bytes, m->bytes) != WK_OK) {
    mapping_release(m);
    return wk_error_category();
  }
  wk__storage_replace(s, m->bytes, m->size, mapping_release, m);
  return WK_OK;
}

/* ---- facts ---- */

bool wk__storage_is_mapped(const wk_storage *s) { return mapping_of(s) != NULL; }

int wk__storage_descriptor(const wk_storage *s) {
  const mapping *m = mapping_of(s);
  return m ? m->descriptor : -1;
}

const char *wk__storage_file_name(const wk_storage *s) {
  const mapping *m = mapping_of(s);
  return m && m->path[0] ? m->path : NULL;
}
