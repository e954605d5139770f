/* Which kernels the cache has code for, by their nests: whoever has the nest needs neither to write it as C nor to know
 * with which others it was compiled.
 *
 * In: sources. Out: units of objects that were read and authenticated, with the kernels that are in them; which sources
 * those are. An entry says of a kernel's name in which unit it is, and as which function. The name is the hash of the
 * nest, its modes, the CPU level, the compiler, and this build of wick, whose writer it was: another one writes other
 * code. Tests: tests/python/test_native_cache.py. */
#define _GNU_SOURCE
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>

#include "cpu/native/native_internal.h"

/* ---- this build ---- */

typedef struct build {
  uint8_t id[64];
  size_t size; /* 0: it is not known */
} build;

static build this_build;
static pthread_once_t found_build = PTHREAD_ONCE_INIT;

/* The linker's note of what it has linked, in this library or program. */
static int find_build(struct dl_phdr_info *info, size_t size, void *context) {
  (void)size, (void)context;
  build *out = &this_build;
  const char *here = (const char *)(uintptr_t)&find_build;
  bool ours = false;
  for (int k = 0; k < info->dlpi_phnum; k++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[k];
    const char *begin = (const char *)(info->dlpi_addr + segment->p_vaddr);
    ours |= segment->p_type == PT_LOAD && here >= begin && here < begin + segment->p_memsz;
  }
  for (int k = 0; ours && k < info->dlpi_phnum; k++) {
    const ElfW(Phdr) *segment = &info->dlpi_phdr[k];
    const char *at = (const char *)(info->dlpi_addr + segment->p_vaddr), *end = at + segment->p_memsz;
    while (segment->p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) <= end) {
      const ElfW(Nhdr) *note = (const ElfW(Nhdr) *)at;
      const char *name = at + sizeof *note, *data = name + ((note->n_namesz + 3) & ~3u);
      bool is_id = note->n_type == NT_GNU_BUILD_ID && note->n_namesz == 4 && memcmp(name, "GNU", 4) == 0;
      if (is_id && note->n_descsz <= sizeof out->id) memcpy(out->id, data, out->size = note->n_descsz);
      at = data + ((note->n_descsz + 3) & ~3u);
    }
  }
  return ours;
}

static void find_this_build(void) { dl_iterate_phdr(find_build, NULL); }

/* ---- names ---- */

bool name_kernel(const compiler *c, const wk__code_source *source, wk__cpu_level level, uint8_t out[WK__HASH_BYTES]) {
  pthread_once(&found_build, find_this_build);
  if (!this_build.size) return false;
  wk__string text = {0};
  wk__string_printf(&text, "kernel %u ", source->modes);
  for (size_t k = 0; k < this_build.size; k++) wk__string_printf(&text, "%02x", this_build.id[k]);
  wk__nest_print(&text, source->nest);
  bool named = !text.failed;
  if (named) hash_request(c, text.text, level, out);
  wk__string_release(&text);
  return named;
}

/* ---- entries ---- */

typedef struct fact {
  uint8_t unit[WK__HASH_BYTES]; /* its name */
  int32_t number;               /* of the kernel in it */
} fact;

void remember_kernel(const cache *store, const uint8_t name[WK__HASH_BYTES], const uint8_t unit[WK__HASH_BYTES],
                     int number) {
  fact f = {.number = number};
  memcpy(f.unit, unit, sizeof f.unit);
  object_bytes bytes = {(char *)&f, sizeof f};
  (void)write_entry(store, name, &bytes);
}

static bool recall_kernel(const cache *store, const uint8_t name[WK__HASH_BYTES], fact *out) {
  object_bytes bytes;
  bool found = read_entry(store, name, &bytes) && bytes.size == sizeof *out;
  if (found) memcpy(out, bytes.data, sizeof *out);
  wk__free(bytes.data);
  return found;
}

/* ---- units ---- */

/* The unit with that name, read when it is first asked for; NULL: it is not in the cache any more. */
static known_unit *unit_of(const cache *store, known_units *units, const fact *f) {
  for (int k = 0; k < units->count; k++)
    if (memcmp(units->items[k].name, f->unit, sizeof f->unit) == 0) return &units->items[k];
  known_unit u = {.source.kernels = NULL};
  memcpy(u.name, f->unit, sizeof u.name);
  if (!read_entry(store, f->unit, &u.object)) return NULL;
  if (wk__grow(&units->items, &units->capacity, units->count + 1, sizeof *units->items) != WK_OK) {
    wk__free(u.object.data);
    return NULL;
  }
  units->items[units->count] = u;
  return &units->items[units->count++];
}

static bool add_known(const cache *store, known_units *units, const wk__code_source *source, const fact *f) {
  known_unit *u = unit_of(store, units, f);
  wk__native_source *into = u ? &u->source : NULL;
  if (!u || wk__grow(&into->kernels, &u->capacity, into->kernel_count + 1, sizeof *into->kernels) != WK_OK)
    return false;
  if (describe_kernel(source, f->number, &into->kernels[into->kernel_count]) != WK_OK) return false;
  into->kernel_count++;
  into->nanoseconds += source->nanoseconds;
  return true;
}

void find_known(const compiler *c, const cache *store, const wk__code_source *sources, int count, wk__cpu_level level,
                known_units *out, bool *out_found) {
  *out = (known_units){.count = 0};
  for (int k = 0; k < count; k++) {
    uint8_t name[WK__HASH_BYTES];
    fact f;
    out_found[k] = name_kernel(c, &sources[k], level, name) && recall_kernel(store, name, &f) &&
                   add_known(store, out, &sources[k], &f);
  }
  wk_error_clear();
}

void release_known(known_units *units) {
  for (int k = 0; k < units->count; k++) {
    wk__free(units->items[k].object.data);
    wk__free(units->items[k].source.kernels);
  }
  wk__free(units->items);
  *units = (known_units){.count = 0};
}
