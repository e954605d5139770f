/* What the files of cpu/conv share among themselves. */
#ifndef WICK_CPU_CONV_CONV_INTERNAL_H
#define WICK_CPU_CONV_CONV_INTERNAL_H

#include "cpu/conv/conv.h"
#include "cpu/workspace.h"

/* A convolution and its operands. Of the weight's gradient `weight` is the input. */
typedef struct wk__conv_job {
  const wk__conv *c;
  const void *in, *weight, *bias; /* bias: or NULL */
  void *out;
} wk__conv_job;

/* depthwise.c: the same as those of conv.h, where wk__conv_is_depthwise. */
WK_MUST_USE wk_status wk__depthwise_forward(const wk__conv_job *job);
WK_MUST_USE wk_status wk__depthwise_input_gradient(const wk__conv_job *job);
WK_MUST_USE wk_status wk__depthwise_weight_gradient(const wk__conv_job *job);

#endif
