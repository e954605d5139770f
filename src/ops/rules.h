/* Declares every function that the operator table names. */
#ifndef WICK_OPS_RULES_H
#define WICK_OPS_RULES_H

#include "ops/ops.h"

#define META(rule) wk__meta_fn wk__meta_##rule;
#define NO_META
#define VJP(rule, ...) wk__vjp_fn wk__vjp_##rule;
#define NO_VJP
#define LOWER(body) wk__lower_fn wk__lower_##body;
#define VIEW(geometry) wk__kernel_fn wk__view_##geometry;
#define KERNEL(function) wk__kernel_fn wk__kernel_##function;
#define COMPOSE(function) wk__kernel_fn wk__compose_##function;
#define OP(symbol, schema, tags, meta, vjp, how, samples) meta vjp how
#include "ops/ops.def"
#undef OP
#undef META
#undef NO_META
#undef VJP
#undef NO_VJP
#undef LOWER
#undef VIEW
#undef KERNEL
#undef COMPOSE

#endif
