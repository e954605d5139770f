/* The CPU as a device: its table. Everything is done when a function returns, so streams and events have nothing to do;
 * memory is memory.c's, tier 0 tier0/'s, tier 1 native/'s. Tests: tests/c/test_device.c. */
#include <time.h>

#include "cpu/cpu.h"
#include "cpu/kernels.h"
#include "cpu/memory.h"
#include "cpu/native/native.h"
#include "cpu/tier0/program.h"
#include "cpu/tile/tile.h"
#include "random/generator.h"

static int count(bool why) {
  (void)why;
  return 1;
}

/* ---- streams and events ---- */

static wk__stream the_stream = {.type = &wk__cpu_device_type, .device = {WK_CPU, -1}};
static wk__stream *stream_of(int index) {
  (void)index;
  return &the_stream;
}
static wk_status nothing_to_wait_for(wk__stream *stream) {
  (void)stream;
  return WK_OK;
}

struct wk__event {
  double milliseconds; /* when it was recorded */
};
static wk__event *create_event(int index) {
  (void)index;
  return wk__alloc_zeroed(sizeof(wk__event));
}
static void release_event(wk__event *event) { wk__free(event); }
static wk_status record(wk__event *event, wk__stream *stream) {
  struct timespec now;
  (void)stream;
  clock_gettime(CLOCK_MONOTONIC, &now);
  event->milliseconds = (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
  return WK_OK;
}
static wk_status wait(wk__stream *stream, const wk__event *event) {
  (void)stream, (void)event;
  return WK_OK;
}
static bool is_done(const wk__event *event) {
  (void)event;
  return true;
}
static wk_status finish(const wk__event *event) {
  (void)event;
  return WK_OK;
}
static double elapsed(const wk__event *begin, const wk__event *end) { return end->milliseconds - begin->milliseconds; }

/* ---- memory ---- */

static wk_status copy(wk__stream *none, void *to, const void *from, int64_t bytes, wk__copy_way way) {
  (void)none, (void)way;
  memcpy(to, from, (size_t)bytes);
  return WK_OK;
}
static wk_status fill(wk__stream *none, void *to, int value, int64_t bytes) {
  (void)none;
  memset(to, value, (size_t)bytes);
  return WK_OK;
}

/* ---- code ---- */

static wk__code *build(const wk__nest *nest) {
  if (wk__cpu_level_check() != WK_OK) return NULL; /* an impossible WICK_CPU is said by the first call */
  return wk__code_of(wk__program_create(nest));
}
static void release_code(wk__code *code) { wk__program_release(wk__program_of(code)); }

static bool is_native(const wk__code *code) { return wk__program_is_native(wk__program_of(code)); }

static wk_status launch(wk__stream *none, const wk__code *code, const wk__launch *launches, int64_t count) {
  (void)none;
  if (WK_LIKELY(count == 1)) return wk__program_run(wk__program_of(code), launches);
  return wk__program_run_many(wk__program_of(code), launches, count);
}

static unsigned modes_of(const wk__code *code, const wk__launch *launch) {
  return wk__native_mode_of(wk__program_of(code), launch);
}

static const wk__fusion_facts facts = {.compiles = true,
                                       .beside = WK__BESIDE_PRODUCTS | WK__BESIDE_MORE | WK__BESIDE_DRAWS,
                                       .beside_dtypes = 1u << WK_FLOAT32 | 1u << WK_FLOAT64,
                                       .kept_elements = WK__KEEP};

const wk__device_type wk__cpu_device_type = {
    .name = "cpu",
    .host_reads = true,
    .count = count,
    .default_stream = stream_of,
    .create_stream = stream_of,
    .synchronize = nothing_to_wait_for,
    .create_event = create_event,
    .release_event = release_event,
    .record = record,
    .wait = wait,
    .is_done = is_done,
    .finish = finish,
    .elapsed = elapsed,
    .allocate = wk__cpu_allocate,
    .release = wk__cpu_release,
    .copy = copy,
    .fill = fill,
    .build = build,
    .release_code = release_code,
    .launch = launch,
    .improve = wk__native_improve,
    .recall_code = wk__native_recall_code,
    .is_native = is_native,
    .bundle_code = wk__native_bundle,
    .unbundle_code = wk__native_unbundle,
    .await_group = wk__native_group_wait,
    .release_group = wk__native_group_release,
    .modes_of = modes_of,
    .launch_tiles = wk__cpu_launch_tiles,
    .kernels = wk__cpu_kernels,
    .kept_codes = wk__cpu_kept_codes,
    .run_product = wk__cpu_run_product,
    .run_draw = wk__cpu_run_draw,
    .facts = &facts,
    .generator = &wk__mt_generator_type,
};
