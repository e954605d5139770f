/* Storages over mapped memory: files as bytes, and memory that processes share.
 *
 * Shared memory is a file without a name: its descriptor goes to another process, which maps it too; children of a fork
 * have the map already. Tests: tests/python/test_shared_memory.py. */
#ifndef WICK_TENSOR_MAPPED_H
#define WICK_TENSOR_MAPPED_H

#include "tensor/tensor.h"

/* The first `bytes` of a file, all of them if that is 0. Not shared: writing does not change the file, which has to be
 * long enough; shared: it does, and a file that is shorter, or is not there, is made so long. */
wk_storage *wk__storage_map_file(const char *path, bool shared, int64_t bytes) WK_MUST_USE;
/* What another process shares by a descriptor, of which a copy is kept. */
wk_storage *wk__storage_map_descriptor(int descriptor, int64_t bytes) WK_MUST_USE;
/* New memory that processes share, of zeros. */
wk_storage *wk__storage_create_shared(int64_t bytes) WK_MUST_USE;

/* Moves the bytes into memory that processes share; nothing where they are. Fails while another library looks at them.
 */
WK_MUST_USE wk_status wk__storage_share(wk_storage *storage);

bool wk__storage_is_mapped(const wk_storage *storage);        /* of a file, or shared */
int wk__storage_descriptor(const wk_storage *storage);        /* of shared memory; -1 of any other */
const char *wk__storage_file_name(const wk_storage *storage); /* of a file that is mapped shared; else NULL */

#endif
