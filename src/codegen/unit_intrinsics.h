/* What cpu/math/vector.h asks of a compiler's intrinsics header, which takes longer to read than a kernel to compile.
 * Only ever read as text, at the head of a generated unit; gcc's names for the instructions (clang reads its own
 * header). Tests: tests/c/test_codegen.c, level by level. */
#if defined(__clang__) && defined(__x86_64__)
#include <immintrin.h>  // UNIT_READS_INTRINSICS
#elif defined(__x86_64__)
typedef float __m128 __attribute__((vector_size(16), may_alias));
typedef double __m128d __attribute__((vector_size(16), may_alias));
typedef long long __m128i __attribute__((vector_size(16), may_alias));
typedef short wk_short8 __attribute__((vector_size(16)));
#define _mm_cvtps_pd(a) __builtin_ia32_cvtps2pd(a)
#define _mm_cvtpd_ps(a) __builtin_ia32_cvtpd2ps(a)
#define _mm_movehl_ps(a, b) __builtin_ia32_movhlps(a, b)
#define _mm_movelh_ps(a, b) __builtin_ia32_movlhps(a, b)
#define _mm_shuffle_ps(a, b, mask) __builtin_ia32_shufps(a, b, mask)
#define _mm_movemask_ps(a) __builtin_ia32_movmskps(a)
#define _mm_movemask_pd(a) __builtin_ia32_movmskpd(a)
#if WK_VECTOR_BYTES >= 32
typedef float __m256 __attribute__((vector_size(32), may_alias));
typedef double __m256d __attribute__((vector_size(32), may_alias));
typedef long long __m256i __attribute__((vector_size(32), may_alias));
typedef char wk_char32 __attribute__((vector_size(32)));
typedef int wk_int8 __attribute__((vector_size(32)));
typedef long long wk_long4 __attribute__((vector_size(32)));
enum { _MM_FROUND_TO_NEAREST_INT, _MM_FROUND_TO_NEG_INF, _MM_FROUND_TO_POS_INF, _MM_FROUND_TO_ZERO };
enum { _MM_FROUND_NO_EXC = 8, _MM_FROUND_CUR_DIRECTION = 4 };
#define _mm256_set1_ps(x) ((__m256){x, x, x, x, x, x, x, x})
#define _mm256_set1_pd(x) ((__m256d){x, x, x, x})
#define _mm256_maskload_ps(p, m) __builtin_ia32_maskloadps256((const __m256 *)(p), (wk_int8)(m))
#define _mm256_maskload_pd(p, m) __builtin_ia32_maskloadpd256((const __m256d *)(p), (wk_long4)(m))
#define _mm256_maskstore_ps(p, m, a) __builtin_ia32_maskstoreps256((__m256 *)(p), (wk_int8)(m), a)
#define _mm256_maskstore_pd(p, m, a) __builtin_ia32_maskstorepd256((__m256d *)(p), (wk_long4)(m), a)
#define _mm256_blendv_ps(a, b, m) __builtin_ia32_blendvps256(a, b, m)
#define _mm256_blendv_pd(a, b, m) __builtin_ia32_blendvpd256(a, b, m)
#define _mm256_blendv_epi8(a, b, m) __builtin_ia32_pblendvb256((wk_char32)(a), (wk_char32)(b), (wk_char32)(m))
#define _mm256_movemask_ps(a) __builtin_ia32_movmskps256(a)
#define _mm256_movemask_pd(a) __builtin_ia32_movmskpd256(a)
#define _mm256_castps256_ps128(a) __builtin_ia32_ps_ps256(a)
#define _mm256_extractf128_ps(a, i) __builtin_ia32_vextractf128_ps256(a, i)
#define _mm256_set_m128(high, low) __builtin_ia32_vinsertf128_ps256(__builtin_ia32_ps256_ps(low), high, 1)
#define _mm256_cvtps_pd(a) __builtin_ia32_cvtps2pd256(a)
#define _mm256_cvtpd_ps(a) __builtin_ia32_cvtpd2ps256(a)
#define _mm256_fmadd_ps(a, b, c) __builtin_ia32_vfmaddps256(a, b, c)
#define _mm256_fmadd_pd(a, b, c) __builtin_ia32_vfmaddpd256(a, b, c)
#define _mm256_max_ps(a, b) __builtin_ia32_maxps256(a, b)
#define _mm256_min_ps(a, b) __builtin_ia32_minps256(a, b)
#define _mm256_max_pd(a, b) __builtin_ia32_maxpd256(a, b)
#define _mm256_min_pd(a, b) __builtin_ia32_minpd256(a, b)
#define _mm256_permutevar8x32_ps(a, i) __builtin_ia32_permvarsf256(a, (wk_int8)(i))
#define _mm256_sqrt_ps(a) __builtin_ia32_sqrtps256(a)
#define _mm256_sqrt_pd(a) __builtin_ia32_sqrtpd256(a)
#define _mm256_round_ps(a, mode) __builtin_ia32_roundps256(a, mode)
#define _mm256_round_pd(a, mode) __builtin_ia32_roundpd256(a, mode)
#endif
#if WK_VECTOR_BYTES == 64
typedef float __m512 __attribute__((vector_size(64), may_alias));
typedef double __m512d __attribute__((vector_size(64), may_alias));
typedef long long __m512i __attribute__((vector_size(64), may_alias));
typedef int wk_int16 __attribute__((vector_size(64)));
typedef long long wk_long8 __attribute__((vector_size(64)));
typedef short wk_short16 __attribute__((vector_size(32)));
typedef unsigned short __mmask16;
typedef unsigned char __mmask8;
enum { _CMP_EQ_OQ = 0, _CMP_LT_OQ = 17, _CMP_LE_OQ = 18, _CMP_NEQ_UQ = 4, _CMP_GE_OQ = 29, _CMP_GT_OQ = 30 };
enum { _MM_CMPINT_EQ, _MM_CMPINT_LT, _MM_CMPINT_LE, _MM_CMPINT_NE = 4, _MM_CMPINT_NLT, _MM_CMPINT_NLE };
#define WK_ALL16 ((__mmask16)-1)
#define WK_ALL8 ((__mmask8)-1)
#define _mm512_set1_ps(x) ((__m512){x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x})
#define _mm512_set1_pd(x) ((__m512d){x, x, x, x, x, x, x, x})
#define _mm512_maskz_loadu_ps(m, p) __builtin_ia32_loadups512_mask(p, (__m512){0}, m)
#define _mm512_maskz_loadu_pd(m, p) __builtin_ia32_loadupd512_mask(p, (__m512d){0}, m)
#define _mm512_mask_storeu_ps(p, m, a) __builtin_ia32_storeups512_mask(p, a, m)
#define _mm512_mask_storeu_pd(p, m, a) __builtin_ia32_storeupd512_mask(p, a, m)
#define _mm512_cmp_ps_mask(a, b, how) ((__mmask16)__builtin_ia32_cmpps512_mask(a, b, how, WK_ALL16, 4))
#define _mm512_cmp_pd_mask(a, b, how) ((__mmask8)__builtin_ia32_cmppd512_mask(a, b, how, WK_ALL8, 4))
#define _mm512_cmp_epi32_mask(a, b, how) \
  ((__mmask16)__builtin_ia32_cmpd512_mask((wk_int16)(a), (wk_int16)(b), how, WK_ALL16))
#define _mm512_cmp_epi64_mask(a, b, how) \
  ((__mmask8)__builtin_ia32_cmpq512_mask((wk_long8)(a), (wk_long8)(b), how, WK_ALL8))
#define _mm512_mask_blend_ps(m, a, b) __builtin_ia32_blendmps_512_mask(a, b, m)
#define _mm512_mask_blend_pd(m, a, b) __builtin_ia32_blendmpd_512_mask(a, b, m)
#define _mm512_mask_blend_epi32(m, a, b) __builtin_ia32_blendmd_512_mask((wk_int16)(a), (wk_int16)(b), m)
#define _mm512_mask_blend_epi64(m, a, b) __builtin_ia32_blendmq_512_mask((wk_long8)(a), (wk_long8)(b), m)
#define _mm512_movm_epi32(m) __builtin_ia32_cvtmask2d512(m)
#define _mm512_movm_epi64(m) __builtin_ia32_cvtmask2q512(m)
static inline __attribute__((always_inline)) __m256 _mm512_castps512_ps256(__m512 a) {
  union {
    __m512 whole;
    __m256 low;
  } u = {a};
  return u.low;
}
#define _mm512_castps256_ps512(a) __builtin_ia32_ps512_256ps(a)
#define _mm512_extractf32x8_ps(a, i) __builtin_ia32_extractf32x8_mask(a, i, (__m256){0}, WK_ALL8)
#define _mm512_insertf32x8(a, b, i) __builtin_ia32_insertf32x8_mask(a, b, i, a, WK_ALL16)
#define _mm512_cvtps_pd(a) __builtin_ia32_cvtps2pd512_mask(a, (__m512d){0}, WK_ALL8, 4)
#define _mm512_cvtpd_ps(a) __builtin_ia32_cvtpd2ps512_mask(a, (__m256){0}, WK_ALL8, 4)
#define _mm512_fmadd_ps(a, b, c) __builtin_ia32_vfmaddps512_mask(a, b, c, WK_ALL16, 4)
#define _mm512_fmadd_pd(a, b, c) __builtin_ia32_vfmaddpd512_mask(a, b, c, WK_ALL8, 4)
#define _mm512_max_ps(a, b) __builtin_ia32_maxps512_mask(a, b, (__m512){0}, WK_ALL16, 4)
#define _mm512_min_ps(a, b) __builtin_ia32_minps512_mask(a, b, (__m512){0}, WK_ALL16, 4)
#define _mm512_max_pd(a, b) __builtin_ia32_maxpd512_mask(a, b, (__m512d){0}, WK_ALL8, 4)
#define _mm512_min_pd(a, b) __builtin_ia32_minpd512_mask(a, b, (__m512d){0}, WK_ALL8, 4)
#define _mm512_broadcast_f32x8(a) __builtin_ia32_broadcastf32x8_512_mask(a, (__m512){0}, WK_ALL16)
#define _mm512_permutexvar_ps(i, a) __builtin_ia32_permvarsf512_mask(a, (wk_int16)(i), (__m512){0}, WK_ALL16)
#define _mm512_sqrt_ps(a) __builtin_ia32_sqrtps512_mask(a, (__m512){0}, WK_ALL16, 4)
#define _mm512_sqrt_pd(a) __builtin_ia32_sqrtpd512_mask(a, (__m512d){0}, WK_ALL8, 4)
#define _mm512_roundscale_ps(a, mode) __builtin_ia32_rndscaleps_mask(a, mode, (__m512){0}, WK_ALL16, 4)
#define _mm512_roundscale_pd(a, mode) __builtin_ia32_rndscalepd_mask(a, mode, (__m512d){0}, WK_ALL8, 4)
#define _mm512_scalef_ps(a, b) __builtin_ia32_scalefps512_mask(a, b, (__m512){0}, WK_ALL16, 4)
#define _mm512_scalef_pd(a, b) __builtin_ia32_scalefpd512_mask(a, b, (__m512d){0}, WK_ALL8, 4)
#define _mm512_maskz_scalef_ps(mask, a, b) __builtin_ia32_scalefps512_mask(a, b, (__m512){0}, mask, 4)
#define _mm512_maskz_scalef_pd(mask, a, b) __builtin_ia32_scalefpd512_mask(a, b, (__m512d){0}, mask, 4)
#endif
#endif
