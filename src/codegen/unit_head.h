/* The first lines of a generated unit: the names that the shared headers expect of libc's headers. Only ever read as
 * text. Functions of libm come from the imports, so that a unit needs no library. */
typedef __INT8_TYPE__ int8_t;
typedef __INT16_TYPE__ int16_t;
typedef __INT32_TYPE__ int32_t;
typedef __INT64_TYPE__ int64_t;
typedef __UINT8_TYPE__ uint8_t;
typedef __UINT16_TYPE__ uint16_t;
typedef __UINT32_TYPE__ uint32_t;
typedef __UINT64_TYPE__ uint64_t;
typedef __INTPTR_TYPE__ intptr_t;
#define INT64_MIN (-0x7fffffffffffffffll - 1)
#define INT64_MAX 0x7fffffffffffffffll
#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define sqrt __builtin_sqrt
#define sqrtf __builtin_sqrtf
#define fabsf __builtin_fabsf
#define copysign __builtin_copysign
