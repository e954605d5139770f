/* The code of a score body (autograd/body.h has what the nests look like): made of its text once, kept for the calls
 * that come again. Equal functions have equal texts, so that who traces a function a second time finds its code.
 *
 * Its program begins on tier 0; a compiled graph that calls it asks for native code (device/device.h, wk__kept_code).
 *
 * Ownership: counted; whoever gets one releases it. The last SCORE_CODES texts are held besides. Any thread.
 * Tests: tests/python/test_flex_attention.py. */
#ifndef WICK_CPU_ATTENTION_SCORE_CODE_H
#define WICK_CPU_ATTENTION_SCORE_CODE_H

#include "cpu/tier0/program.h"

typedef struct wk__score_code wk__score_code;

/* WK_VALUE_ERROR: the text is no nest, or not one over blocks of scores of this dtype and these captured tensors.
 * with_gradients: it adds to these tensors' gradients. */
WK_MUST_USE wk_status wk__score_code_get(const char *text, wk_dtype scores, wk_tensor *const *captured, int count,
                                         bool with_gradients, wk__score_code **out);
void wk__score_code_release(wk__score_code *code); /* NULL is fine */
const wk__program *wk__score_program(const wk__score_code *code);
wk__kept_code *wk__score_kept(wk__score_code *code); /* the share of it becomes the caller's of this */

#endif
