/* What libraries in software give a stream of the emulated driver: work that is done in its turn, also of a graph that
 * the stream is captured into, each time that this is launched. Tests: tests/test_graphs.c. */
#ifndef EMULATOR_WORK_H
#define EMULATOR_WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* `arguments` are a copy of what was given. It may call emulator_copy and nothing else of the driver. false: it has
 * touched what is no memory, and its context has failed. */
typedef bool emulator_work(const void *arguments, int device);

/* A CUresult. */
int emulator_give(void *stream, emulator_work *work, const void *arguments, size_t bytes);

/* From the device or the host to either, now; false: it is not mapped and accessible there. */
bool emulator_copy(uint64_t to, uint64_t from, size_t bytes, int device);

#pragma GCC visibility pop

#endif
