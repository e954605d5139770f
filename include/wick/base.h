/* Status codes, errors, library-wide settings. Every other public header includes this one. */
#ifndef WICK_BASE_H
#define WICK_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WK_API __attribute__((visibility("default")))
#define WK_MUST_USE __attribute__((warn_unused_result))
#define WK_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))

#ifdef __cplusplus
extern "C" {
#endif

/* What went wrong. Each category is one Python exception type; the mapping stands in python/errors.c. */
typedef enum wk_status {
  WK_OK = 0,
  WK_RUNTIME_ERROR,   /* RuntimeError: PyTorch's catch-all for shapes and state */
  WK_VALUE_ERROR,     /* ValueError */
  WK_TYPE_ERROR,      /* TypeError: a dtype or an argument of the wrong kind */
  WK_INDEX_ERROR,     /* IndexError: a dimension or an index out of range */
  WK_KEY_ERROR,       /* KeyError */
  WK_LINALG_ERROR,    /* linalg.LinAlgError: a matrix without such a factorisation or solution */
  WK_OUT_OF_MEMORY,   /* RuntimeError in PyTorch's words; MemoryError for Python objects */
  WK_IO_ERROR,        /* OSError: a file cannot be opened, read or written */
  WK_NOT_IMPLEMENTED, /* NotImplementedError */
  WK_UNSUPPORTED,     /* the one category that may end in a graph break or a fallback */
  WK_INTERRUPTED,     /* the exception is already set by the embedding language */
  WK_INTERNAL_ERROR,  /* a bug of ours, found by a check */
  WK_STATUS_COUNT
} wk_status;

/* The calling thread's last error. The message lives until the thread's next failing call. */
WK_API wk_status wk_error_category(void);
WK_API const char *wk_error_message(void);
WK_API const char *wk_error_origin(void); /* "file.c:123", for a bug report */
WK_API void wk_error_clear(void);

/* Sets the calling thread's error and returns `category`. Use the macro wk_fail. */
WK_API wk_status wk_error_set(wk_status category, const char *origin, const char *format, ...) WK_PRINTF(3, 4);

#define WK_STRING_(x) #x
#define WK_STRING(x) WK_STRING_(x)
#define wk_fail(category, ...) wk_error_set((category), __FILE__ ":" WK_STRING(__LINE__), __VA_ARGS__)

/* Returns from the calling function with the status when it is not WK_OK. */
#define WK_TRY(expression)                                             \
  do {                                                                 \
    wk_status try_status_ = (expression);                              \
    if (__builtin_expect(try_status_ != WK_OK, 0)) return try_status_; \
  } while (0)

/* Threads used inside one operator. n must be at least 1. */
WK_API WK_MUST_USE wk_status wk_set_num_threads(int n);
WK_API int wk_get_num_threads(void);

WK_API const char *wk_version(void);

#ifdef __cplusplus
}
#endif
#endif
