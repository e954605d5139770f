/* Shared by the builder's files. */
#ifndef WICK_TILE_INTERNAL_H
#define WICK_TILE_INTERNAL_H

#include <stdio.h>

#include "tile/tile.h"

enum { TYPE_NAME = 128 };

/* Until the next instruction is made. */
static inline const wk__tile_type *type_of(const wk__tile_builder *b, wk__tile x) { return &b->kernel->instrs[x].type; }
wk__tile tile_emit(wk__tile_builder *b, wk__tile_op op, const wk__tile_type *type, wk__tile x, wk__tile y, wk__tile z);
bool tile_known(const wk__tile_builder *b, wk__tile x); /* a constant */
bool tile_check_shape(wk__tile_builder *b, int ndim, const int32_t *shape);
wk__loop_op tile_loop_op(const char *name);
const char *tile_dtype_name(int dtype); /* "fp32" */
void tile_type_name(const wk__tile_type *t, char *out, size_t bytes);

#endif
