/* Where the lanes of a warp meet: shuffles, votes, matches, reductions, barriers of a warp.
 *
 * Each lane waits at its instruction. When all lanes that the mask names have come, all do what it says and go on. A
 * lane of the mask that has ended can never come: that is a failure of the launch; one that the block never had counts
 * as absent, and who reads from it gets poison. Tests: tests/test_warps.c, tests/test_errors.c. */
#include "cuda/driver.h"
#include "ptx_run.h"
#include "ptx_values.h"

/* ---- what they do, once together ---- */

typedef struct meeting {
  ptx_thread *lanes; /* of the warp */
  uint32_t count;    /* lanes that the warp has */
  uint32_t mask;     /* those that take part */
  const ptx_ins *ins;
} meeting;

static bool takes_part(const meeting *m, uint32_t lane) { return lane < m->count && m->mask >> lane & 1; }

/* The lane that a lane reads from, and whether it lies in the segment: the ISA's pseudo code of shfl.sync. */
static uint32_t source_lane(int64_t mode, uint32_t lane, uint32_t b, uint32_t c, bool *out_inside) {
  enum { UP, DOWN, BUTTERFLY, INDEX };
  uint32_t segment = c >> 8 & 31, clamp = c & 31;
  uint32_t most = (lane & segment) | (clamp & ~segment), least = lane & segment, from = 0;
  b &= 31;
  switch (mode) {
    case UP:
      from = lane - b, *out_inside = (int32_t)from >= (int32_t)most;
      break;
    case DOWN:
      from = lane + b, *out_inside = from <= most;
      break;
    case BUTTERFLY:
      from = lane ^ b, *out_inside = from <= most;
      break;
    default:
      from = least | (b & ~segment & 31), *out_inside = from <= most;
      break;
  }
  return *out_inside ? from : lane;
}

static void shuffle(const meeting *m) {
  uint64_t values[PTX_WARP];
  for (uint32_t i = 0; i < m->count; i++) values[i] = takes_part(m, i) ? U32(m->lanes[i].r[m->ins->a]) : 0;
  for (uint32_t i = 0; i < m->count; i++) {
    if (!takes_part(m, i)) continue;
    uint64_t *r = m->lanes[i].r;
    bool inside;
    uint32_t from = source_lane(m->ins->imm & 0xff, i, U32(r[m->ins->b]), U32(r[m->ins->c]), &inside);
    uint64_t value = takes_part(m, from) ? values[from] : 0xfbfbfbfb;
    r[m->ins->imm >> 8] = inside;
    r[m->ins->d] = value;
  }
}

static void vote(const meeting *m) {
  enum { ALL, ANY, UNIFORM, BALLOT };
  uint32_t set = 0, present = 0;
  for (uint32_t i = 0; i < m->count; i++) {
    if (!takes_part(m, i)) continue;
    present |= (uint32_t)1 << i;
    set |= (uint32_t)(m->lanes[i].r[m->ins->a] & 1) << i;
  }
  uint64_t result = m->ins->imm == BALLOT ? set
                    : m->ins->imm == ALL  ? set == present
                    : m->ins->imm == ANY  ? set != 0
                                          : set == present || !set;
  for (uint32_t i = 0; i < m->count; i++)
    if (takes_part(m, i)) m->lanes[i].r[m->ins->d] = result;
}

static void match(const meeting *m) {
  uint32_t present = 0, equal[PTX_WARP] = {0};
  for (uint32_t i = 0; i < m->count; i++)
    if (takes_part(m, i)) present |= (uint32_t)1 << i;
  for (uint32_t i = 0; i < m->count; i++)
    for (uint32_t j = 0; j < m->count; j++)
      if (takes_part(m, i) && takes_part(m, j) &&
          !ptx_extend(m->lanes[i].r[m->ins->a] ^ m->lanes[j].r[m->ins->a], m->ins->type))
        equal[i] |= (uint32_t)1 << j;
  for (uint32_t i = 0; i < m->count; i++) {
    if (!takes_part(m, i)) continue;
    bool all = equal[i] == present;
    m->lanes[i].r[m->ins->d] = m->ins->imm == 0 ? equal[i] : all ? present : 0;
    if (m->ins->imm == 1) m->lanes[i].r[m->ins->c] = all;
  }
}

static uint64_t reduce(const ptx_ins *ins, uint64_t a, uint64_t b) {
  enum { ADD, MIN, MAX, AND, OR, XOR };
  switch (ins->imm) {
    case ADD:
      return U32(a + b);
    case MIN:
      return ptx_compare(ins->type, PTX_CMP_LT, b, a, false) ? b : a;
    case MAX:
      return ptx_compare(ins->type, PTX_CMP_GT, b, a, false) ? b : a;
    case AND:
      return a & b;
    case OR:
      return a | b;
    default:
      return a ^ b;
  }
}

static void redux(const meeting *m) {
  uint64_t result = 0;
  bool first = true;
  for (uint32_t i = 0; i < m->count; i++) {
    if (!takes_part(m, i)) continue;
    uint64_t value = m->lanes[i].r[m->ins->a];
    result = first ? value : reduce(m->ins, result, value);
    first = false;
  }
  for (uint32_t i = 0; i < m->count; i++)
    if (takes_part(m, i)) m->lanes[i].r[m->ins->d] = U32(result);
}

static void elect(const meeting *m) {
  uint32_t leader = (uint32_t)__builtin_ctz(m->mask);
  for (uint32_t i = 0; i < m->count; i++) {
    if (!takes_part(m, i)) continue;
    m->lanes[i].r[m->ins->d] = leader;
    m->lanes[i].r[m->ins->c] = i == leader;
  }
}

static void perform(const meeting *m) {
  switch (m->ins->op) {
    case PTX_OP_SHFL:
      shuffle(m);
      break;
    case PTX_OP_VOTE:
      vote(m);
      break;
    case PTX_OP_MATCH:
      match(m);
      break;
    case PTX_OP_REDUX:
      redux(m);
      break;
    case PTX_OP_ELECT:
      elect(m);
      break;
    case PTX_OP_LDMATRIX:
    case PTX_OP_STMATRIX:
      ptx_matrix_move(m->lanes, m->ins);
      break;
    case PTX_OP_MMA:
      ptx_matrix_multiply(m->lanes, m->ins);
      break;
    case PTX_OP_WGMMA:
      ptx_warpgroup_multiply(m->lanes, m->ins);
      break;
    default:
      break;
  }
}

/* ---- who has come ---- */

static bool is_for_warp(const ptx_thread *t) {
  return t->state == PTX_WAITS && t->pc->op != PTX_OP_BARRIER && t->pc->op != PTX_OP_ACTIVEMASK;
}
static bool is_matrix(const ptx_ins *ins) {
  return ins->op == PTX_OP_LDMATRIX || ins->op == PTX_OP_STMATRIX || ins->op == PTX_OP_MMA || ins->op == PTX_OP_WGMMA;
}

/* Whether all lanes of the mask stand at the same instruction with the same mask; a lane that cannot come any more, or
 * that cannot be meant, makes the first lane fail. */
static bool all_have_come(const meeting *m, ptx_thread *first) {
  const ptx_ins *ins = first->pc;
  bool everywhere = ins->op == PTX_OP_BAR_WARP; /* lanes may come to it at different places */
  if (!(m->mask >> first->lane & 1)) {
    ptx_fault(first, ins, CUDA_ERROR_LAUNCH_FAILED, "the mask 0x%08x does not name the lane that uses it", m->mask);
    return false;
  }
  if (is_matrix(ins) && m->count < PTX_WARP) {
    ptx_fault(first, ins, CUDA_ERROR_LAUNCH_FAILED, "the warp has only %u lanes", m->count);
    return false;
  }
  for (uint32_t i = 0; i < m->count; i++) {
    if (!takes_part(m, i)) continue;
    const ptx_thread *lane = &m->lanes[i];
    if (lane->state == PTX_ENDED) {
      if (everywhere) continue;
      ptx_fault(first, ins, CUDA_ERROR_LAUNCH_FAILED, "deadlock: lane %u of the mask 0x%08x has ended", i, m->mask);
      return false;
    }
    if (!is_for_warp(lane) || lane->pc->op != ins->op || (!everywhere && lane->pc != ins)) return false;
    if (U32(lane->r[lane->pc->e]) != m->mask) return false;
  }
  return true;
}

static void go_on(ptx_block *block, const meeting *m, uint32_t warp) {
  for (uint32_t i = 0; i < m->count; i++) {
    if (!takes_part(m, i) || m->lanes[i].state != PTX_WAITS) continue;
    m->lanes[i].state = PTX_READY;
    m->lanes[i].pc++;
  }
  if (block->races) races_join_warp(block->races, warp);
}

static meeting meeting_of(ptx_block *block, uint32_t warp) {
  uint32_t first = warp * PTX_WARP, left = block->thread_count - first;
  return (meeting){.lanes = block->threads + first, .count = left < PTX_WARP ? left : PTX_WARP};
}

/* A failure leaves a lane in PTX_FAILED, which ends the block. */
bool ptx_meet(ptx_block *block, uint32_t warp) {
  bool any = false;
  meeting m = meeting_of(block, warp);
  for (uint32_t i = 0; i < m.count; i++) {
    ptx_thread *lane = &m.lanes[i];
    if (!is_for_warp(lane)) continue;
    m.ins = lane->pc;
    m.mask = U32(lane->r[lane->pc->e]);
    if (!all_have_come(&m, lane)) {
      if (lane->state == PTX_FAILED) return true;
      continue;
    }
    perform(&m);
    for (uint32_t j = 0; j < m.count; j++)
      if (m.lanes[j].state == PTX_FAILED) return true;
    go_on(block, &m, warp);
    any = true;
  }
  return any;
}

bool ptx_meet_active(ptx_block *block, uint32_t warp) {
  meeting m = meeting_of(block, warp);
  for (uint32_t i = 0; i < m.count; i++) {
    if (m.lanes[i].state != PTX_WAITS || m.lanes[i].pc->op != PTX_OP_ACTIVEMASK) continue;
    m.ins = m.lanes[i].pc;
    for (uint32_t j = i; j < m.count; j++)
      if (m.lanes[j].state == PTX_WAITS && m.lanes[j].pc == m.ins) m.mask |= (uint32_t)1 << j;
    for (uint32_t j = i; j < m.count; j++)
      if (takes_part(&m, j)) m.lanes[j].r[m.ins->d] = m.mask, m.lanes[j].state = PTX_READY, m.lanes[j].pc++;
    return true;
  }
  return false;
}
