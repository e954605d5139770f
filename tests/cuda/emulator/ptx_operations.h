/* The table of operations: what an instruction is called, what operands it takes and what it computes.
 *
 * A row: name, PTX's words for it, signature, expression of the result. The parser (ptx_instructions.c) finds rows by
 * word, after it has taken off rounding, .ftz, .sat, .approx and .NaN; the interpreter (ptx_run.c) gets its cases.
 *
 * Signature, a letter an operand, the destination first:
 *   t  the type in the word (of two types, the first)      y  the second type of the word
 *   w  the type of twice the width                          u  32 bits
 *   p  predicate                                            i  a constant
 * and after a slash which modifiers may stand: r rounding, R a rounding or .approx has to, A .approx has to,
 * A .approx has to, f .ftz, F .ftz has to, s .sat, n .NaN, l .relu. With + the row heeds them itself. Otherwise, when
 * one is given that matters (not .rn, not .approx), the row whose word ends in ! is taken instead.
 *
 * Expression: A, B, C, E are the slots of the sources; U16(A), S32(A), F(A), FD(A) read them as a type; what it gives
 * is stored as it is, so results narrower than 64 bits are cast. CC: the carry. MOD: the modifiers. */
#ifndef EMULATOR_PTX_OPERATIONS_H
#define EMULATOR_PTX_OPERATIONS_H

/* clang-format off */
#define PTX_CARRY(X, N)                                                                                               \
  X(ADD_CC_##N, "add.cc.u" #N " add.cc.s" #N, "ttt", U##N(ptx_add_carry(U##N(A), U##N(B), 0, N, CC)))                  \
  X(ADDC_##N, "addc.u" #N " addc.s" #N, "ttt", U##N(A + B + *CC))                                                      \
  X(ADDC_CC_##N, "addc.cc.u" #N " addc.cc.s" #N, "ttt", U##N(ptx_add_carry(U##N(A), U##N(B), *CC, N, CC)))             \
  X(SUB_CC_##N, "sub.cc.u" #N " sub.cc.s" #N, "ttt", U##N(ptx_sub_borrow(U##N(A), U##N(B), 0, N, CC)))                 \
  X(SUBC_##N, "subc.u" #N " subc.s" #N, "ttt", U##N(A - B - *CC))                                                      \
  X(SUBC_CC_##N, "subc.cc.u" #N " subc.cc.s" #N, "ttt", U##N(ptx_sub_borrow(U##N(A), U##N(B), *CC, N, CC)))            \
  X(MAD_CC_##N, "mad.lo.cc.u" #N " mad.lo.cc.s" #N, "tttt", U##N(ptx_add_carry(U##N(A * B), U##N(C), 0, N, CC)))       \
  X(MADC_##N, "madc.lo.u" #N " madc.lo.s" #N, "tttt", U##N(A * B + C + *CC))                                           \
  X(MADC_CC_##N, "madc.lo.cc.u" #N " madc.lo.cc.s" #N, "tttt",                                                         \
    U##N(ptx_add_carry(U##N(A * B), U##N(C), *CC, N, CC)))                                                             \
  X(MADH_CC_U##N, "mad.hi.cc.u" #N, "tttt", U##N(ptx_add_carry(ptx_high_u##N(A, B), U##N(C), 0, N, CC)))               \
  X(MADHC_U##N, "madc.hi.u" #N, "tttt", U##N(ptx_high_u##N(A, B) + C + *CC))                                           \
  X(MADHC_CC_U##N, "madc.hi.cc.u" #N, "tttt", U##N(ptx_add_carry(ptx_high_u##N(A, B), U##N(C), *CC, N, CC)))           \
  X(MADH_CC_S##N, "mad.hi.cc.s" #N, "tttt", U##N(ptx_add_carry(U##N(ptx_high_s##N(A, B)), U##N(C), 0, N, CC)))         \
  X(MADHC_S##N, "madc.hi.s" #N, "tttt", U##N(ptx_high_s##N(A, B) + C + *CC))                                           \
  X(MADHC_CC_S##N, "madc.hi.cc.s" #N, "tttt", U##N(ptx_add_carry(U##N(ptx_high_s##N(A, B)), U##N(C), *CC, N, CC)))

#define PTX_BITS(X, N)                                                                                                \
  X(ADD_##N, "add.u" #N " add.s" #N, "ttt", U##N(A + B))                                                               \
  X(SUB_##N, "sub.u" #N " sub.s" #N, "ttt", U##N(A - B))                                                               \
  X(MUL_##N, "mul.lo.u" #N " mul.lo.s" #N, "ttt", U##N(A * B))                                                         \
  X(MAD_##N, "mad.lo.u" #N " mad.lo.s" #N, "tttt", U##N(A * B + C))                                                    \
  X(AND_##N, "and.b" #N, "ttt", U##N(A & B))                                                                           \
  X(OR_##N, "or.b" #N, "ttt", U##N(A | B))                                                                             \
  X(XOR_##N, "xor.b" #N, "ttt", U##N(A ^ B))                                                                           \
  X(NOT_##N, "not.b" #N, "tt", U##N(~A))                                                                               \
  X(CNOT_##N, "cnot.b" #N, "tt", U##N(A) == 0)                                                                         \
  X(NEG_##N, "neg.s" #N, "tt", U##N(0 - A))                                                                            \
  X(SHL_##N, "shl.b" #N, "ttu", U32(B) >= N ? 0 : U##N(A << (B & 63)))                                                 \
  X(SHR_U##N, "shr.u" #N " shr.b" #N, "ttu", U32(B) >= N ? 0 : U##N(U##N(A) >> (B & 63)))                              \
  X(SHR_S##N, "shr.s" #N, "ttu", U##N(S##N(A) >> (U32(B) >= N ? N - 1 : U32(B))))                                      \
  X(SETP_EQ_##N, "setp.eq.b" #N " setp.eq.u" #N " setp.eq.s" #N, "ptt", U##N(A) == U##N(B))                            \
  X(SETP_NE_##N, "setp.ne.b" #N " setp.ne.u" #N " setp.ne.s" #N, "ptt", U##N(A) != U##N(B))                            \
  X(SELP_##N, "selp.b" #N " selp.u" #N " selp.s" #N, "tttp", C & 1 ? A : B)                                            \
  X(SLCT_S##N, "slct.b" #N ".s32 slct.u" #N ".s32 slct.s" #N ".s32", "ttty", S32(C) >= 0 ? A : B)                      \
  X(SLCT_F##N, "slct.b" #N ".f32 slct.u" #N ".f32 slct.s" #N ".f32", "ttty/f", F(C) >= 0 ? A : B)

/* SU is U or S, su is u or s, W the double width. */
#define PTX_INTEGER(X, N, SU, su)                                                                                     \
  X(DIV_##SU##N, "div." #su #N, "ttt", U##N(ptx_div_##su(SU##N(A), SU##N(B))))                                         \
  X(REM_##SU##N, "rem." #su #N, "ttt", U##N(ptx_rem_##su(SU##N(A), SU##N(B))))                                         \
  X(MIN_##SU##N, "min." #su #N, "ttt", U##N(SU##N(A) < SU##N(B) ? A : B))                                              \
  X(MAX_##SU##N, "max." #su #N, "ttt", U##N(SU##N(A) > SU##N(B) ? A : B))                                              \
  X(SAD_##SU##N, "sad." #su #N, "tttt", U##N(C + (SU##N(A) < SU##N(B) ? B - A : A - B)))                               \
  X(MULH_##SU##N, "mul.hi." #su #N, "ttt", U##N(ptx_high_##su##N(A, B)))                                               \
  X(MADH_##SU##N, "mad.hi." #su #N, "tttt", U##N(ptx_high_##su##N(A, B) + C))                                          \
  X(SETP_LT_##SU##N, "setp.lt." #su #N, "ptt", SU##N(A) < SU##N(B))                                                    \
  X(SETP_LE_##SU##N, "setp.le." #su #N, "ptt", SU##N(A) <= SU##N(B))                                                   \
  X(SETP_GT_##SU##N, "setp.gt." #su #N, "ptt", SU##N(A) > SU##N(B))                                                    \
  X(SETP_GE_##SU##N, "setp.ge." #su #N, "ptt", SU##N(A) >= SU##N(B))

#define PTX_WIDE(X, N, W, SU, su)                                                                                     \
  X(MULW_##SU##N, "mul.wide." #su #N, "wtt", U##W((uint64_t)SU##N(A) * (uint64_t)SU##N(B)))                            \
  X(MADW_##SU##N, "mad.wide." #su #N, "wttw", U##W((uint64_t)SU##N(A) * (uint64_t)SU##N(B) + C))

#define PTX_INTEGERS(X)                                                                                               \
  PTX_BITS(X, 16) PTX_BITS(X, 32) PTX_BITS(X, 64)                                                                      \
  PTX_INTEGER(X, 16, U, u) PTX_INTEGER(X, 32, U, u) PTX_INTEGER(X, 64, U, u)                                           \
  PTX_INTEGER(X, 16, S, s) PTX_INTEGER(X, 32, S, s) PTX_INTEGER(X, 64, S, s)                                           \
  PTX_WIDE(X, 16, 32, U, u) PTX_WIDE(X, 32, 64, U, u) PTX_WIDE(X, 16, 32, S, s) PTX_WIDE(X, 32, 64, S, s)              \
  PTX_CARRY(X, 32) PTX_CARRY(X, 64)                                                                                    \
  X(ADD_16X2, "add.u16x2 add.s16x2", "ttt", ptx_add_16x2(U32(A), U32(B)))                                              \
  X(MIN_U16X2, "min.u16x2", "ttt", ptx_extreme_16x2(U32(A), U32(B), false, false))                                     \
  X(MAX_U16X2, "max.u16x2", "ttt", ptx_extreme_16x2(U32(A), U32(B), false, true))                                      \
  X(MIN_S16X2, "min.s16x2", "ttt", ptx_extreme_16x2(U32(A), U32(B), true, false))                                      \
  X(MAX_S16X2, "max.s16x2", "ttt", ptx_extreme_16x2(U32(A), U32(B), true, true))                                       \
  X(ABS_16, "abs.s16", "tt", U16(S16(A) < 0 ? 0 - A : A))                                                              \
  X(ABS_32, "abs.s32", "tt", U32(S32(A) < 0 ? 0 - A : A))                                                              \
  X(ABS_64, "abs.s64", "tt", S64(A) < 0 ? 0 - A : A)                                                                   \
  X(ADD_SAT, "add.s32!", "ttt/s", U32(ptx_clamp_s32((int64_t)S32(A) + S32(B))))                                        \
  X(SUB_SAT, "sub.s32!", "ttt/s", U32(ptx_clamp_s32((int64_t)S32(A) - S32(B))))                                        \
  X(MADH_SAT, "mad.hi.s32!", "tttt/s", U32(ptx_clamp_s32(((int64_t)S32(A) * S32(B) >> 32) + S32(C))))                  \
  X(MUL24_U, "mul24.lo.u32", "ttt", U32((A & 0xffffff) * (B & 0xffffff)))                                              \
  X(MUL24_S, "mul24.lo.s32", "ttt", U32(ptx_s24(A) * ptx_s24(B)))                                                      \
  X(MUL24H_U, "mul24.hi.u32", "ttt", U32((A & 0xffffff) * (B & 0xffffff) >> 16))                                       \
  X(MUL24H_S, "mul24.hi.s32", "ttt", U32(ptx_s24(A) * ptx_s24(B) >> 16))                                               \
  X(MAD24H_U, "mad24.hi.u32", "tttt", U32(((A & 0xffffff) * (B & 0xffffff) >> 16) + C))                                \
  X(MAD24H_S, "mad24.hi.s32", "tttt", U32((uint64_t)(ptx_s24(A) * ptx_s24(B) >> 16) + C))                              \
  X(MAD24_U, "mad24.lo.u32", "tttt", U32((A & 0xffffff) * (B & 0xffffff) + C))                                         \
  X(MAD24_S, "mad24.lo.s32", "tttt", U32((uint64_t)(ptx_s24(A) * ptx_s24(B)) + C))                                     \
  X(SETP_LO_16, "setp.lo.u16", "ptt", U16(A) < U16(B)) X(SETP_LS_16, "setp.ls.u16", "ptt", U16(A) <= U16(B))           \
  X(SETP_HI_16, "setp.hi.u16", "ptt", U16(A) > U16(B)) X(SETP_HS_16, "setp.hs.u16", "ptt", U16(A) >= U16(B))           \
  X(SETP_LO_32, "setp.lo.u32", "ptt", U32(A) < U32(B)) X(SETP_LS_32, "setp.ls.u32", "ptt", U32(A) <= U32(B))           \
  X(SETP_HI_32, "setp.hi.u32", "ptt", U32(A) > U32(B)) X(SETP_HS_32, "setp.hs.u32", "ptt", U32(A) >= U32(B))           \
  X(SETP_LO_64, "setp.lo.u64", "ptt", A < B) X(SETP_LS_64, "setp.ls.u64", "ptt", A <= B)                               \
  X(SETP_HI_64, "setp.hi.u64", "ptt", A > B) X(SETP_HS_64, "setp.hs.u64", "ptt", A >= B)                               \
  X(AND_P, "and.pred", "ttt", A & B & 1) X(OR_P, "or.pred", "ttt", (A | B) & 1)                                        \
  X(XOR_P, "xor.pred", "ttt", (A ^ B) & 1) X(NOT_P, "not.pred", "tt", ~A & 1)

#define PTX_BIT_FIELDS(X)                                                                                             \
  X(LOP3, "lop3.b32", "tttti", ptx_lop3(U32(A), U32(B), U32(C), (unsigned)E))                                          \
  X(SHF_LW, "shf.l.wrap.b32", "tttu", U32((U32(A) | B << 32) << (C & 31) >> 32))                                       \
  X(SHF_LC, "shf.l.clamp.b32", "tttu", U32(C) > 31 ? U32(A) : U32((U32(A) | B << 32) << (C & 31) >> 32))               \
  X(SHF_RW, "shf.r.wrap.b32", "tttu", U32((U32(A) | B << 32) >> (C & 31)))                                             \
  X(SHF_RC, "shf.r.clamp.b32", "tttu", U32(C) > 31 ? U32(B) : U32((U32(A) | B << 32) >> (C & 31)))                     \
  X(BFE_U32, "bfe.u32", "ttuu", U32(ptx_bfe(U32(A), U32(B), U32(C), 32, false)))                                       \
  X(BFE_S32, "bfe.s32", "ttuu", U32(ptx_bfe(U32(A), U32(B), U32(C), 32, true)))                                        \
  X(BFE_U64, "bfe.u64", "ttuu", ptx_bfe(A, U32(B), U32(C), 64, false))                                                 \
  X(BFE_S64, "bfe.s64", "ttuu", ptx_bfe(A, U32(B), U32(C), 64, true))                                                  \
  X(BFI_32, "bfi.b32", "tttuu", U32(ptx_bfi(U32(A), U32(B), U32(C), U32(E), 32)))                                      \
  X(BFI_64, "bfi.b64", "tttuu", ptx_bfi(A, B, U32(C), U32(E), 64))                                                     \
  X(BREV_32, "brev.b32", "tt", ptx_reverse(A) >> 32)                                                                   \
  X(BREV_64, "brev.b64", "tt", ptx_reverse(A))                                                                         \
  X(CLZ_32, "clz.b32", "ut", U32(A) ? __builtin_clz(U32(A)) : 32)                                                      \
  X(CLZ_64, "clz.b64", "ut", A ? __builtin_clzll(A) : 64)                                                              \
  X(POPC_32, "popc.b32", "ut", __builtin_popcount(U32(A)))                                                             \
  X(POPC_64, "popc.b64", "ut", __builtin_popcountll(A))                                                                \
  X(BFIND_U32, "bfind.u32", "ut", U32(ptx_bfind(U32(A))))                                                              \
  X(BFIND_U64, "bfind.u64", "ut", U32(ptx_bfind(A)))                                                                   \
  X(BFIND_S32, "bfind.s32", "ut", U32(ptx_bfind(U32(S32(A) < 0 ? ~A : A))))                                            \
  X(BFIND_S64, "bfind.s64", "ut", U32(ptx_bfind(S64(A) < 0 ? ~A : A)))                                                 \
  X(BFIND_SHIFT_U32, "bfind.shiftamt.u32", "ut", U32(ptx_shift_amount(U32(A), 31)))                                   \
  X(BFIND_SHIFT_U64, "bfind.shiftamt.u64", "ut", U32(ptx_shift_amount(A, 63)))                                        \
  X(BFIND_SHIFT_S32, "bfind.shiftamt.s32", "ut", U32(ptx_shift_amount(U32(S32(A) < 0 ? ~A : A), 31)))                  \
  X(BFIND_SHIFT_S64, "bfind.shiftamt.s64", "ut", U32(ptx_shift_amount(S64(A) < 0 ? ~A : A, 63)))                       \
  X(PRMT, "prmt.b32", "tttu", ptx_prmt(U32(A), U32(B), U32(C)))                                                        \
  X(PRMT_F4E, "prmt.b32.f4e", "tttu", ptx_prmt(U32(A), U32(B), 0x3210 + 0x1111 * (C & 3)))                             \
  X(PRMT_B4E, "prmt.b32.b4e", "tttu", ptx_prmt(U32(A), U32(B), (0x5670 + 0x1111 * (C & 3)) & 0x7777))                  \
  X(PRMT_ECL, "prmt.b32.ecl", "tttu", ptx_prmt(U32(A), U32(B), ptx_edge_left(C & 3)))                                  \
  X(PRMT_ECR, "prmt.b32.ecr", "tttu", ptx_prmt(U32(A), U32(B), ptx_edge_right(C & 3)))                                 \
  X(PRMT_RC8, "prmt.b32.rc8", "tttu", ptx_prmt(U32(A), U32(B), 0x1111 * (C & 3)))                                      \
  X(PRMT_RC16, "prmt.b32.rc16", "tttu", ptx_prmt(U32(A), U32(B), C & 1 ? 0x3232 : 0x1010))                             \
  X(BMSK_CLAMP, "bmsk.clamp.b32", "tuu", ptx_bmsk(U32(A), U32(B)))                                                     \
  X(BMSK_WRAP, "bmsk.wrap.b32", "tuu", ptx_bmsk(A & 31, B & 31))                                                       \
  X(DP4A_UU, "dp4a.u32.u32", "ttyu", ptx_dp4a(U32(A), U32(B), U32(C), false, false))                                   \
  X(DP4A_US, "dp4a.u32.s32", "ttyu", ptx_dp4a(U32(A), U32(B), U32(C), false, true))                                    \
  X(DP4A_SU, "dp4a.s32.u32", "ttyu", ptx_dp4a(U32(A), U32(B), U32(C), true, false))                                    \
  X(DP4A_SS, "dp4a.s32.s32", "ttyu", ptx_dp4a(U32(A), U32(B), U32(C), true, true))

#define PTX_FLOAT_COMPARISONS(X, NAME, type, F)                                                                       \
  X(SETP_EQ_##NAME, "setp.eq." type, "ptt", F(A) == F(B))                                                              \
  X(SETP_NE_##NAME, "setp.ne." type, "ptt", F(A) < F(B) || F(A) > F(B))                                                \
  X(SETP_LT_##NAME, "setp.lt." type, "ptt", F(A) < F(B)) X(SETP_LE_##NAME, "setp.le." type, "ptt", F(A) <= F(B))       \
  X(SETP_GT_##NAME, "setp.gt." type, "ptt", F(A) > F(B)) X(SETP_GE_##NAME, "setp.ge." type, "ptt", F(A) >= F(B))       \
  X(SETP_EQU_##NAME, "setp.equ." type, "ptt", !(F(A) < F(B) || F(A) > F(B)))                                           \
  X(SETP_NEU_##NAME, "setp.neu." type, "ptt", F(A) != F(B))                                                            \
  X(SETP_LTU_##NAME, "setp.ltu." type, "ptt", !(F(A) >= F(B))) X(SETP_LEU_##NAME, "setp.leu." type, "ptt", !(F(A) > F(B))) \
  X(SETP_GTU_##NAME, "setp.gtu." type, "ptt", !(F(A) <= F(B))) X(SETP_GEU_##NAME, "setp.geu." type, "ptt", !(F(A) < F(B))) \
  X(SETP_NUM_##NAME, "setp.num." type, "ptt", F(A) == F(A) && F(B) == F(B))                                            \
  X(SETP_NAN_##NAME, "setp.nan." type, "ptt", F(A) != F(A) || F(B) != F(B))

#define PTX_FLOATS(X)                                                                                                 \
  PTX_FLOAT_COMPARISONS(X, F32, "f32", F) PTX_FLOAT_COMPARISONS(X, F64, "f64", FD)                                     \
  X(ADD_F32, "add.f32", "ttt/rfs", ptx_f32(F(A) + F(B)))                                                               \
  X(SUB_F32, "sub.f32", "ttt/rfs", ptx_f32(F(A) - F(B)))                                                               \
  X(MUL_F32, "mul.f32", "ttt/rfs", ptx_f32(F(A) * F(B)))                                                               \
  X(FMA_F32, "fma.f32 mad.f32", "tttt/Rfs", ptx_f32(fmaf(F(A), F(B), F(C))))                                           \
  X(DIV_F32, "div.f32", "ttt/Rf", ptx_f32(F(A) / F(B)))                                                                \
  X(RCP_F32, "rcp.f32", "tt/Rf", ptx_f32(1 / F(A)))                                                                    \
  X(SQRT_F32, "sqrt.f32", "tt/Rf", ptx_f32(sqrtf(F(A))))                                                               \
  X(ADD_F32_MOD, "add.f32!", "ttt/rfs", ptx_f32_rounded(PTX_ADD, A, B, 0, MOD))                                        \
  X(SUB_F32_MOD, "sub.f32!", "ttt/rfs", ptx_f32_rounded(PTX_SUB, A, B, 0, MOD))                                        \
  X(MUL_F32_MOD, "mul.f32!", "ttt/rfs", ptx_f32_rounded(PTX_MUL, A, B, 0, MOD))                                        \
  X(FMA_F32_MOD, "fma.f32! mad.f32!", "tttt/Rfs", ptx_f32_rounded(PTX_FMA, A, B, C, MOD))                              \
  X(DIV_F32_MOD, "div.f32!", "ttt/Rf", ptx_f32_rounded(PTX_DIV, A, B, 0, MOD))                                         \
  X(RCP_F32_MOD, "rcp.f32!", "tt/Rf", ptx_f32_rounded(PTX_DIV, 0x3f800000, A, 0, MOD))                                 \
  X(SQRT_F32_MOD, "sqrt.f32!", "tt/Rf", ptx_f32_rounded(PTX_SQRT, A, 0, 0, MOD))                                       \
  X(MIN_F32, "min.f32", "ttt/fn", ptx_f32_min(A, B)) X(MAX_F32, "max.f32", "ttt/fn", ptx_f32_max(A, B))                \
  X(MIN_F32_MOD, "min.f32!", "ttt/fn", ptx_f32_extreme(U32(A), U32(B), false, MOD))                                    \
  X(MAX_F32_MOD, "max.f32!", "ttt/fn", ptx_f32_extreme(U32(A), U32(B), true, MOD))                                     \
  X(ABS_F32, "abs.f32", "tt/f+", ptx_f32_sign(U32(A) & 0x7fffffff, MOD))                                               \
  X(NEG_F32, "neg.f32", "tt/f+", ptx_f32_sign(U32(A) ^ 0x80000000, MOD))                                               \
  X(RSQRT_F32, "rsqrt.f32", "tt/Af+", ptx_f32_approx(PTX_RSQRT, A, MOD))                                               \
  X(EX2_F32, "ex2.f32", "tt/Af+", ptx_f32_approx(PTX_EX2, A, MOD))                                                     \
  X(LG2_F32, "lg2.f32", "tt/Af+", ptx_f32_approx(PTX_LG2, A, MOD))                                                     \
  X(SIN_F32, "sin.f32", "tt/Af+", ptx_f32_approx(PTX_SIN, A, MOD))                                                     \
  X(COS_F32, "cos.f32", "tt/Af+", ptx_f32_approx(PTX_COS, A, MOD))                                                     \
  X(TANH_F32, "tanh.f32", "tt/A+", ptx_f32_approx(PTX_TANH, A, MOD))                                                   \
  X(COPYSIGN_F32, "copysign.f32", "ttt", (U32(A) & 0x80000000) | (U32(B) & 0x7fffffff))                                \
  X(ADD_F64, "add.f64", "ttt/r", ptx_f64(FD(A) + FD(B))) X(SUB_F64, "sub.f64", "ttt/r", ptx_f64(FD(A) - FD(B)))        \
  X(MUL_F64, "mul.f64", "ttt/r", ptx_f64(FD(A) * FD(B)))                                                               \
  X(FMA_F64, "fma.f64 mad.f64", "tttt/R", ptx_f64(fma(FD(A), FD(B), FD(C))))                                           \
  X(DIV_F64, "div.f64", "ttt/R", ptx_f64(FD(A) / FD(B)))                                                               \
  X(RCP_F64, "rcp.f64", "tt/Rf", ptx_f64(1 / FD(A))) X(SQRT_F64, "sqrt.f64", "tt/R", ptx_f64(sqrt(FD(A))))             \
  X(ADD_F64_MOD, "add.f64!", "ttt/r", ptx_f64_rounded(PTX_ADD, A, B, 0, MOD))                                          \
  X(SUB_F64_MOD, "sub.f64!", "ttt/r", ptx_f64_rounded(PTX_SUB, A, B, 0, MOD))                                          \
  X(MUL_F64_MOD, "mul.f64!", "ttt/r", ptx_f64_rounded(PTX_MUL, A, B, 0, MOD))                                          \
  X(FMA_F64_MOD, "fma.f64! mad.f64!", "tttt/R", ptx_f64_rounded(PTX_FMA, A, B, C, MOD))                                \
  X(DIV_F64_MOD, "div.f64!", "ttt/R", ptx_f64_rounded(PTX_DIV, A, B, 0, MOD))                                          \
  X(RCP_F64_MOD, "rcp.f64!", "tt/Rf", ptx_f64_rounded(PTX_DIV, 0x3ff0000000000000, A, 0, MOD))                         \
  X(SQRT_F64_MOD, "sqrt.f64!", "tt/R", ptx_f64_rounded(PTX_SQRT, A, 0, 0, MOD))                                        \
  X(RSQRT_F64, "rsqrt.f64", "tt/Af+", ptx_f64(1 / sqrt(FD(A))))                                                        \
  X(MIN_F64, "min.f64", "ttt", ptx_f64_extreme(A, B, false)) X(MAX_F64, "max.f64", "ttt", ptx_f64_extreme(A, B, true)) \
  X(ABS_F64, "abs.f64", "tt", A & 0x7fffffffffffffff) X(NEG_F64, "neg.f64", "tt", A ^ 0x8000000000000000)              \
  X(COPYSIGN_F64, "copysign.f64", "ttt", (A & 0x8000000000000000) | (B & 0x7fffffffffffffff))                          \
  X(SELP_F32, "selp.f32", "tttp", C & 1 ? A : B) X(SELP_F64, "selp.f64", "tttp", C & 1 ? A : B)                        \
  X(SLCT_F32S, "slct.f32.s32", "ttty", S32(C) >= 0 ? A : B) X(SLCT_F64S, "slct.f64.s32", "ttty", S32(C) >= 0 ? A : B)  \
  X(SLCT_F32F, "slct.f32.f32", "ttty/f", F(C) >= 0 ? A : B) X(SLCT_F64F, "slct.f64.f32", "ttty/f", F(C) >= 0 ? A : B)  \
  X(TESTP_FIN32, "testp.finite.f32", "pt", !!isfinite(F(A))) X(TESTP_INF32, "testp.infinite.f32", "pt", !!isinf(F(A))) \
  X(TESTP_NUM32, "testp.number.f32", "pt", F(A) == F(A)) X(TESTP_NAN32, "testp.notanumber.f32", "pt", F(A) != F(A))    \
  X(TESTP_NOR32, "testp.normal.f32", "pt", !!isnormal(F(A)))                                                           \
  X(TESTP_SUB32, "testp.subnormal.f32", "pt", fpclassify(F(A)) == FP_SUBNORMAL)                                        \
  X(TESTP_FIN64, "testp.finite.f64", "pt", !!isfinite(FD(A))) X(TESTP_INF64, "testp.infinite.f64", "pt", !!isinf(FD(A))) \
  X(TESTP_NUM64, "testp.number.f64", "pt", FD(A) == FD(A)) X(TESTP_NAN64, "testp.notanumber.f64", "pt", FD(A) != FD(A)) \
  X(TESTP_NOR64, "testp.normal.f64", "pt", !!isnormal(FD(A)))                                                          \
  X(TESTP_SUB64, "testp.subnormal.f64", "pt", fpclassify(FD(A)) == FP_SUBNORMAL)

/* T is F16 or BF16, or a pair of them, which does the same to each half; then what may stand with add, sub and mul, with
 * fma, min and max, abs and neg, and ex2. */
#define PTX_HALF(X, T, type, with_add, with_fma, with_min, with_abs, with_ex2)                                        \
  X(ADD_##T, "add." type, "ttt/" with_add "+", ptx_half(PTX_ADD, PTX_##T, A, B, 0, MOD))                               \
  X(SUB_##T, "sub." type, "ttt/" with_add "+", ptx_half(PTX_SUB, PTX_##T, A, B, 0, MOD))                               \
  X(MUL_##T, "mul." type, "ttt/" with_add "+", ptx_half(PTX_MUL, PTX_##T, A, B, 0, MOD))                               \
  X(FMA_##T, "fma." type, "tttt/" with_fma "+", ptx_half(PTX_FMA, PTX_##T, A, B, C, MOD))                              \
  X(MIN_##T, "min." type, "ttt/" with_min "+", ptx_half(PTX_MIN, PTX_##T, A, B, 0, MOD))                               \
  X(MAX_##T, "max." type, "ttt/" with_min "+", ptx_half(PTX_MAX, PTX_##T, A, B, 0, MOD))                               \
  X(ABS_##T, "abs." type, "tt/" with_abs "+", ptx_half(PTX_ABS, PTX_##T, A, 0, 0, MOD))                                \
  X(NEG_##T, "neg." type, "tt/" with_abs "+", ptx_half(PTX_NEG, PTX_##T, A, 0, 0, MOD))                                \
  X(EX2_##T, "ex2." type, "tt/" with_ex2 "+", ptx_half(PTX_EX2, PTX_##T, A, 0, 0, MOD))                                \
  X(TANH_##T, "tanh." type, "tt/A+", ptx_half(PTX_TANH, PTX_##T, A, 0, 0, MOD))
#define PTX_HALVES(X)                                                                                                 \
  PTX_HALF(X, F16, "f16", "rfs", "Rfsl", "fn", "f", "A") PTX_HALF(X, F16X2, "f16x2", "rfs", "Rfsl", "fn", "f", "A")    \
  PTX_HALF(X, BF16, "bf16", "r", "Rl", "n", "", "AF") PTX_HALF(X, BF16X2, "bf16x2", "r", "Rl", "n", "", "AF")

#define PTX_OPERATIONS(X)                                                                                             \
  PTX_INTEGERS(X) PTX_BIT_FIELDS(X) PTX_FLOATS(X) PTX_HALVES(X)

/* Operations with a case of their own in ptx_run.c. Those from BARRIER on end the run of a thread until others have
 * come to them too; ptx_warp.c, ptx_matrix.c and launch.c do what they say. */
#define PTX_CONTROL(X)                                                                                                \
  X(MOV) X(PACK) X(UNPACK) X(CLOCK)                                                                                    \
  X(LD) X(LD_GLOBAL) X(LD_SHARED) X(LD_PARAM) X(ST) X(ST_GLOBAL) X(ST_SHARED) X(ATOM)                                  \
  X(CP_ASYNC) X(CP_COMMIT) X(CP_WAIT) X(MBARRIER_INIT) X(MBARRIER_ARRIVE) X(MBARRIER_TRY) X(BULK_COPY) X(BULK_STORE)  \
  X(CVTA) X(CVTA_TO) X(ISSPACEP) X(SETP) X(SET)                                                                        \
  X(CVT) X(CVT_U32) X(CVT_S32) X(CVT_F32_S32) X(CVT_F32_BF16) X(CVT_BF16_F32) X(CVT_PAIR)                              \
  X(BRA) X(BRA_IF) X(BRA_IFNOT) X(BRX) X(CALL) X(RET) X(EXIT) X(TRAP) X(BAR_ARRIVE)                                    \
  X(BARRIER) X(BAR_WARP) X(SHFL) X(VOTE) X(MATCH) X(REDUX) X(ACTIVEMASK) X(ELECT) X(LDMATRIX) X(STMATRIX) X(MMA) \
  X(WGMMA)
/* clang-format on */

#endif
