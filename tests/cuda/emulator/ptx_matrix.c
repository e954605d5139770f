/* Small matrices that the 32 lanes of a warp hold together: ldmatrix, stmatrix, mma, and a warp's quarter of wgmma.
 *
 * Which lane holds which element follows one rule for all shapes and types. Lane l is of group g = l / 4 and place
 * q = l mod 4; a register holds n elements of a row (n = 4 bytes / element, 1 for f64). Element e of register j is
 *   of A (M, K): row g + 8 (j mod 2), column q n + e + 4 n (j / 2)
 *   of B (K, 8): row q n + e + 4 n j, column g
 *   of C, D (M, 8): register or half j: row g + 8 (j / 2), column 2 q + j mod 2
 * (PTX ISA, the figures of mma.m16n8k8 to mma.m16n8k32 and mma.m8n8k4). Sums of floats go on in f32 with k ascending;
 * hardware adds in an order and width of its own, so its bits differ. Tests: tests/test_warps.c. */
#include "cuda/driver.h"
#include "ptx_run.h"
#include "ptx_values.h"

/* ---- ldmatrix, stmatrix ---- */

/* The addresses of the rows come from the lanes: matrix m, row i from lane 8 m + i. */
static bool find_rows(ptx_thread *lanes, const ptx_ins *ins, uint8_t **rows, ptx_purpose purpose) {
  for (uint32_t i = 0; i < 8u * ins->count; i++) {
    uint64_t address = lanes[i].r[ins->a] + (uint64_t)ins->imm;
    if (ins->bytes) address = U32(address);
    rows[i] = ptx_at(&lanes[i], ins, ins->type2, address, 16, purpose);
    if (!rows[i]) return false;
  }
  return true;
}

void ptx_matrix_move(ptx_thread *lanes, const ptx_ins *ins) {
  uint8_t *rows[PTX_WARP];
  bool loads = ins->op == PTX_OP_LDMATRIX, transposed = ins->type;
  if (!find_rows(lanes, ins, rows, loads ? PTX_READ : PTX_WRITE)) return;
  const uint32_t *slots = lanes->function->lists + ins->d;
  for (uint32_t lane = 0; lane < PTX_WARP; lane++) {
    for (uint32_t matrix = 0; matrix < ins->count; matrix++) {
      uint64_t *slot = &lanes[lane].r[slots[matrix]], value = 0;
      for (uint32_t half = 0; half < 2; half++) {
        uint32_t major = lane / 4, minor = lane % 4 * 2 + half;
        uint8_t *at = rows[matrix * 8 + (transposed ? minor : major)] + 2 * (transposed ? major : minor);
        uint16_t element = U16(*slot >> 16 * half);
        if (loads)
          memcpy(&element, at, 2);
        else
          memcpy(at, &element, 2);
        value |= (uint64_t)element << 16 * half;
      }
      if (loads) *slot = value;
    }
  }
}

/* ---- mma ---- */

enum { ROWS = 16, COLUMNS = 8, MOST_K = 32 };

typedef struct factors {
  double a[ROWS][MOST_K], b[MOST_K][COLUMNS];
} factors;

static double element_value(ptx_type type, uint64_t bits) {
  switch (type) {
    case PTX_S8:
      return (int8_t)bits;
    case PTX_U8:
      return (uint8_t)bits;
    case PTX_S32:
      return S32(bits);
    case PTX_F64:
      return FD(bits);
    case PTX_F32:
      return F(bits);
    case PTX_TF32:
      return F(U32(bits) & 0xffffe000); /* the low 13 bits are not looked at */
    default:
      return ptx_to_double(bits & (ptx_types[type].bytes == 1 ? 0xff : 0xffff), ptx_format_of(type));
  }
}

static void gather(const ptx_thread *lanes, const ptx_ins *ins, factors *f) {
  const uint32_t *lists = lanes->function->lists;
  int m = ins->count, k = (int)ins->imm, bytes = ptx_types[ins->type].bytes, n = bytes > 4 ? 1 : 4 / bytes;
  int width = 8 * bytes, a_count = m * k / (PTX_WARP * n), b_count = k * COLUMNS / (PTX_WARP * n), tall = m / 8;
  for (int lane = 0; lane < PTX_WARP; lane++) {
    const uint64_t *r = lanes[lane].r;
    int g = lane / 4, q = lane % 4;
    for (int j = 0; j < a_count; j++)
      for (int e = 0; e < n; e++)
        f->a[g + 8 * (j % tall)][q * n + e + 4 * n * (j / tall)] =
            element_value(ins->type, r[lists[ins->a + (uint32_t)j]] >> width * e);
    for (int j = 0; j < b_count; j++)
      for (int e = 0; e < n; e++)
        f->b[q * n + e + 4 * n * j][g] = element_value(ins->type2, r[lists[ins->b + (uint32_t)j]] >> width * e);
  }
}

/* Where element j of a lane's part of C lies: the slot and the shift in it. */
static uint64_t *sum_slot(const ptx_thread *lane, uint32_t list, ptx_type type, int j, int *out_shift) {
  bool half = type == PTX_F16;
  *out_shift = half ? 16 * (j % 2) : 0;
  return &lane->r[lane->function->lists[list + (uint32_t)(half ? j / 2 : j)]];
}

static uint64_t dot(const ptx_ins *ins, const factors *f, int row, int column, uint64_t c) {
  ptx_type type = (ptx_type)ins->bytes;
  int k = (int)ins->imm;
  if (type == PTX_F64) {
    double sum = FD(c);
    for (int i = 0; i < k; i++) sum = fma(f->a[row][i], f->b[i][column], sum);
    return ptx_f64(sum);
  }
  if (type == PTX_S32) {
    int64_t sum = S32(c);
    for (int i = 0; i < k; i++) sum += (int64_t)(f->a[row][i] * f->b[i][column]);
    return U32(ins->mod & PTX_MOD_SAT ? ptx_clamp_s32(sum) : (int32_t)(uint32_t)sum);
  }
  float sum = (float)element_value(type, c);
  for (int i = 0; i < k; i++) sum += (float)(f->a[row][i] * f->b[i][column]);
  return type == PTX_F32 ? ptx_f32(sum) : ptx_from_double(sum, ptx_format_of(type), PTX_RN, false);
}

void ptx_matrix_multiply(ptx_thread *lanes, const ptx_ins *ins) {
  factors f;
  ptx_type type = (ptx_type)ins->bytes;
  uint64_t sums[PTX_WARP][4];
  int count = ins->count * COLUMNS / PTX_WARP, shift;
  gather(lanes, ins, &f);
  for (int lane = 0; lane < PTX_WARP; lane++)
    for (int j = 0; j < count; j++) {
      const uint64_t *c = sum_slot(&lanes[lane], ins->c, type, j, &shift);
      sums[lane][j] = dot(ins, &f, lane / 4 + 8 * (j / 2), lane % 4 * 2 + j % 2, *c >> shift);
    }
  for (int lane = 0; lane < PTX_WARP; lane++)
    for (int j = 0; j < count; j++) {
      uint64_t *slot = sum_slot(&lanes[lane], ins->d, type, j, &shift);
      *slot = type == PTX_F16 ? (*slot & ~((uint64_t)0xffff << shift)) | sums[lane][j] << shift : sums[lane][j];
    }
}

/* ---- wgmma: a warp has 16 rows of 64; A and B lie in shared memory ---- */

/* A descriptor: where the matrix begins, / 16 (14 bits); bytes / 16 from a line's bytes along the other dim than k to
 * the next ones, of one that lies across k (bits 16 on); bytes / 16 from 8 lines to the next 8 (bits 32 on); in the
 * last two bits 1, 2 or 3: lines of 128, 64 or 32 bytes, whose 16-byte piece c is at c ^ a part of the address from bit
 * 7 on. Lines run along k, or, turned, across it. (PTX ISA, "Matrix Descriptor Format"; 0, without exchange, is not
 * known here.) */
static bool piece_at(ptx_thread *t, const ptx_ins *ins, uint64_t desc, bool turned, uint32_t line, uint32_t piece,
                     uint8_t out[16]) {
  if (desc >> 62 == 0) {
    ptx_fault(t, ins, CUDA_ERROR_LAUNCH_FAILED, "a descriptor without a swizzle");
    return false;
  }
  uint32_t pieces = 16u >> (desc >> 62); /* of a line */
  uint64_t panel = turned ? piece / pieces : 0, at = (desc & 0x3fff) << 4;
  at += panel * ((desc >> 16 & 0x3fff) << 4) + line / 8 * ((desc >> 32 & 0x3fff) << 4) + line % 8 * 16 * pieces;
  at += 16 * (turned ? piece % pieces : piece);
  at ^= (at >> 7 & (pieces - 1)) << 4;
  const uint8_t *from = ptx_at(t, ins, PTX_SHARED, at, 16, PTX_READ);
  if (from) memcpy(out, from, 16);
  return from;
}

enum { SLICE = 32 }; /* bytes of k */

/* (count, k) of a matrix, of which row `first` is the first. */
static bool gather_rows(ptx_thread *t, const ptx_ins *ins, ptx_type type, uint64_t desc, bool turned, uint32_t first,
                        uint32_t count, float out[][MOST_K]) {
  uint8_t piece[16];
  uint32_t bytes = ptx_types[type].bytes, each = 16 / bytes, depth = SLICE / bytes;
  for (uint32_t line = 0; line < (turned ? depth : count); line++)
    for (uint32_t n = 0; n < (turned ? count / each : 2); n++) {
      if (!piece_at(t, ins, desc, turned, turned ? line : first + line, turned ? first / each + n : n, piece))
        return false;
      for (uint32_t e = 0; e < each; e++) {
        uint32_t bits = 0;
        memcpy(&bits, piece + e * bytes, bytes);
        out[turned ? each * n + e : line][turned ? line : each * n + e] = (float)element_value(type, bits);
      }
    }
  return true;
}

/* Of A, elements of two bytes. */
static void gather_registers(const ptx_thread *lanes, const ptx_ins *ins, float out[][MOST_K]) {
  const uint32_t *slots = lanes->function->lists + ins->a;
  for (uint32_t lane = 0; lane < PTX_WARP; lane++)
    for (uint32_t j = 0; j < 4; j++)
      for (uint32_t e = 0; e < 2; e++)
        out[lane / 4 + 8 * (j % 2)][lane % 4 * 2 + e + 8 * (j / 2)] =
            (float)ptx_to_double(lanes[lane].r[slots[j]] >> 16 * e & 0xffff, ptx_format_of(ins->type));
}

static uint64_t sum_of_slice(const ptx_ins *ins, const float *x, const float *y, bool adds, uint64_t before) {
  int depth = SLICE / ptx_types[ins->type].bytes;
  if (ins->bytes == PTX_S32) {
    int64_t sum = adds ? S32(before) : 0;
    for (int k = 0; k < depth; k++) sum += (int64_t)x[k] * (int64_t)y[k];
    return (uint32_t)sum;
  }
  float sum = adds ? F(before) : 0;
  for (int k = 0; k < depth; k++) sum += x[k] * y[k];
  return ptx_f32(sum);
}

void ptx_warpgroup_multiply(ptx_thread *lanes, const ptx_ins *ins) {
  static _Thread_local float a[16][MOST_K], b[256][MOST_K];
  uint32_t flags = (uint32_t)ins->imm, columns = 8u * ins->count;
  const uint32_t *slots = lanes->function->lists + ins->d;
  bool adds = lanes->r[ins->c] & 1;
  if (flags & 1)
    gather_registers(lanes, ins, a);
  else if (!gather_rows(lanes, ins, ins->type, lanes->r[ins->a], flags & 2, lanes->warp % 4 * 16, 16, a))
    return;
  if (!gather_rows(lanes, ins, ins->type2, lanes->r[ins->b], flags & 4, 0, columns, b)) return;
  for (uint32_t lane = 0; lane < PTX_WARP; lane++)
    for (uint32_t j = 0; j < columns / 2; j++) {
      uint64_t *slot = &lanes[lane].r[slots[j]];
      *slot = sum_of_slice(ins, a[lane / 4 + 8 * (j / 2 % 2)], b[j / 4 * 8 + lane % 4 * 2 + j % 2], adds, *slot);
    }
}
