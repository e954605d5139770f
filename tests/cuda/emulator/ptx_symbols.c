/* Names, scopes and slots of the function that is being read.
 *
 * A register, a constant and a special register each get one slot of the frame; a constant is kept once. Labels may be
 * used before they stand: references are settled when the scope that has the label closes. Tests: tests/test_control.c,
 * tests/test_parse.c. */
#include <stdlib.h>

#include "ptx_parser.h"

enum { POISON = 0xfb };

void *ptx_grow(ptx_module *module, void *array, uint32_t count, uint32_t *capacity, size_t item) {
  if (count < *capacity) return array;
  *capacity = *capacity ? *capacity * 2 : 16;
  void *larger = ptx_alloc(module, *capacity * item);
  if (count) memcpy(larger, array, count * item);
  return larger;
}

/* ---- names ---- */

static uint32_t hash_of(const char *name, size_t length) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)name[i]) * 16777619u;
  return (hash ^ hash >> 15) % PTX_BUCKETS;
}

static ptx_symbol *find(ptx_parser *p, const char *name, size_t length) {
  ptx_symbol *symbol = p->buckets[hash_of(name, length)];
  while (symbol && (strncmp(symbol->name, name, length) || symbol->name[length])) symbol = symbol->next;
  return symbol;
}

/* Of a range %r<10>, %r0 to %r9 are registers and %r is not. */
ptx_symbol *ptx_lookup(ptx_parser *p, const char *name, uint32_t *out_index) {
  *out_index = 0;
  ptx_symbol *symbol = find(p, name, strlen(name));
  if (symbol) return symbol->count && symbol->kind == PTX_SYMBOL_REGISTER ? NULL : symbol;
  size_t stem = strlen(name);
  while (stem && name[stem - 1] >= '0' && name[stem - 1] <= '9') stem--;
  if (!name[stem] || !stem) return NULL;
  /* The stem may itself end in digits: %r1<5> has %r10 to %r14. */
  for (size_t cut = stem; name[cut]; cut++) {
    symbol = find(p, name, cut);
    if (!symbol || symbol->kind != PTX_SYMBOL_REGISTER || !symbol->count) continue;
    unsigned long index = strtoul(name + cut, NULL, 10);
    if (index >= symbol->count || (name[cut] == '0' && name[cut + 1])) continue;
    *out_index = (uint32_t)index;
    return symbol;
  }
  return NULL;
}

ptx_symbol *ptx_peek_symbol(ptx_parser *p) {
  enum { MOST = 4096 }; /* mangled names are long */
  char name[MOST];
  uint32_t index;
  if (p->token.kind != PTX_TOKEN_WORD) return NULL;
  if (p->token.length >= MOST) ptx_fail(p, "a name of more than %d characters", MOST - 1);
  memcpy(name, p->token.text, (size_t)p->token.length);
  name[p->token.length] = 0;
  return ptx_lookup(p, name, &index);
}

ptx_symbol *ptx_declare(ptx_parser *p, const char *name, ptx_symbol_kind kind) {
  ptx_symbol *same = find(p, name, strlen(name));
  if (same && same->depth == p->depth) ptx_fail(p, "\"%s\" is declared twice", name);
  ptx_symbol *symbol = ptx_alloc(p->module, sizeof *symbol);
  uint32_t bucket = hash_of(name, strlen(name));
  *symbol = (ptx_symbol){.next = p->buckets[bucket], .older = p->newest, .name = name, .kind = kind, .depth = p->depth};
  return p->newest = p->buckets[bucket] = symbol;
}

/* ---- scopes and labels ---- */

void ptx_refer(ptx_parser *p, const char *label, bool in_list, uint32_t at) {
  p->references = ptx_grow(p->module, p->references, p->reference_count, &p->reference_capacity, sizeof *p->references);
  p->references[p->reference_count++] = (ptx_reference){label, p->token.line, p->depth, in_list, at};
}

/* What this scope's labels do not answer waits for the scope around it. */
static void settle_references(ptx_parser *p) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < p->reference_count; i++) {
    ptx_reference *reference = &p->references[i];
    ptx_symbol *label = find(p, reference->name, strlen(reference->name));
    bool mine = reference->depth >= p->depth && label && label->kind == PTX_SYMBOL_LABEL && label->depth == p->depth;
    if (mine && reference->in_list)
      p->function->lists[reference->at] = (uint32_t)label->offset;
    else if (mine)
      p->function->code[reference->at].imm = (int64_t)label->offset;
    else
      p->references[kept++] = *reference;
  }
  p->reference_count = kept;
  if (p->depth == 1 && kept) {
    p->token.line = p->references[0].line;
    ptx_fail(p, "unknown label \"%s\"", p->references[0].name);
  }
}

void ptx_open_scope(ptx_parser *p) { p->depth++; }

void ptx_close_scope(ptx_parser *p) {
  settle_references(p);
  while (p->newest && p->newest->depth == p->depth) {
    p->buckets[hash_of(p->newest->name, strlen(p->newest->name))] = p->newest->next;
    p->newest = p->newest->older;
  }
  p->depth--;
}

/* ---- slots ---- */

uint32_t ptx_new_slot(ptx_parser *p, uint64_t first_value) {
  ptx_function *f = p->function;
  f->frame = ptx_grow(p->module, f->frame, f->slot_count, &p->slot_capacity, sizeof *f->frame);
  f->frame[f->slot_count] = first_value;
  return f->slot_count++;
}

uint32_t ptx_new_slots(ptx_parser *p, uint32_t count) {
  uint64_t poison;
  memset(&poison, POISON, sizeof poison);
  ptx_function *f = p->function;
  uint32_t first = f->slot_count;
  for (uint32_t i = 0; i < count; i++) ptx_new_slot(p, poison);
  if (f->register_count == first) f->register_count += count;
  return first;
}

uint32_t ptx_constant_slot(ptx_parser *p, uint64_t value) {
  uint32_t bucket = (uint32_t)((value * 0x9e3779b97f4a7c15u) >> 56) % PTX_CONSTANT_BUCKETS;
  for (ptx_constant *c = p->constants[bucket]; c; c = c->next)
    if (c->value == value) return c->slot;
  ptx_constant *constant = ptx_alloc(p->module, sizeof *constant);
  *constant = (ptx_constant){p->constants[bucket], value, ptx_new_slot(p, value)};
  p->constants[bucket] = constant;
  return constant->slot;
}

int ptx_special_of(const char *name) {
  static const char *const names[] = {
#define X(special, word) word,
      PTX_SPECIALS(X)
#undef X
  };
  for (int i = 0; i < PTX_SPECIAL_COUNT; i++)
    if (!strcmp(names[i], name)) return i;
  return -1;
}

ptx_type ptx_special_type(ptx_special special) {
  bool wide = special == PTX_SPECIAL_GRIDID || special == PTX_SPECIAL_CLOCK64 || special == PTX_SPECIAL_GLOBALTIMER;
  return wide ? PTX_U64 : PTX_U32;
}

uint32_t ptx_special_slot(ptx_parser *p, ptx_special special) {
  ptx_function *f = p->function;
  for (uint32_t i = 0; i < f->special_count; i++)
    if (f->specials[i].special == special) return f->specials[i].slot;
  f->specials = ptx_grow(p->module, f->specials, f->special_count, &p->special_capacity, sizeof *f->specials);
  uint32_t slot = ptx_new_slot(p, 0);
  f->specials[f->special_count++] = (ptx_frame_special){slot, (uint8_t)special};
  return slot;
}

uint32_t ptx_add_list(ptx_parser *p, const uint32_t *slots, uint32_t count) {
  ptx_function *f = p->function;
  uint32_t first = f->list_count;
  for (uint32_t i = 0; i < count; i++) {
    f->lists = ptx_grow(p->module, f->lists, f->list_count, &p->list_capacity, sizeof *f->lists);
    f->lists[f->list_count++] = slots[i];
  }
  return first;
}

ptx_ins *ptx_emit(ptx_parser *p, ptx_op op) {
  ptx_function *f = p->function;
  f->code = ptx_grow(p->module, f->code, f->code_count, &p->code_capacity, sizeof *f->code);
  ptx_ins *ins = &f->code[f->code_count++];
  *ins = (ptx_ins){.op = (uint16_t)op, .mod = (uint16_t)p->mod, .line = p->word_line};
  if (op >= PTX_OP_BARRIER || op == PTX_OP_CALL) f->waits = true;
  return ins;
}

/* ---- addresses of variables ---- */

/* A shared variable of the module gets its place in each kernel that uses it; those that functions use lie at the start
 * of every kernel's. */
static uint64_t shared_offset(ptx_parser *p, ptx_symbol *symbol) {
  if (symbol->depth > 0 || symbol->function == p->function) return symbol->offset;
  ptx_function *f = p->function;
  f->shared_bytes = (f->shared_bytes + symbol->alignment - 1) & ~(symbol->alignment - 1);
  symbol->function = f;
  symbol->offset = f->shared_bytes;
  f->shared_bytes += (uint32_t)symbol->bytes;
  return symbol->offset;
}

/* base + offset in a slot of its own. */
static uint32_t sum_slot(ptx_parser *p, uint32_t base, int64_t offset) {
  if (!offset) return base;
  uint32_t sum = ptx_new_slots(p, 1), addend = ptx_constant_slot(p, (uint64_t)offset);
  ptx_ins *ins = ptx_emit(p, PTX_OP_ADD_64);
  ins->d = sum, ins->a = base, ins->b = addend;
  return sum;
}

/* The slot of a global variable is not shared with a constant that happens to be its offset: it is relocated. */
static uint32_t global_slot(ptx_parser *p, uint64_t offset) {
  ptx_module *m = p->module;
  uint32_t slot = ptx_new_slot(p, offset);
  m->relocations = ptx_grow(m, m->relocations, m->relocation_count, &p->relocation_capacity, sizeof *m->relocations);
  m->relocations[m->relocation_count++] = (ptx_relocation){p->function, slot};
  return slot;
}

uint32_t ptx_address_slot(ptx_parser *p, ptx_symbol *symbol, int64_t offset) {
  switch (symbol->space) {
    case PTX_GLOBAL:
      return global_slot(p, symbol->offset + (uint64_t)offset);
    case PTX_SHARED:
      if (symbol->is_dynamic) {
        if (symbol->alignment > p->function->dynamic_alignment) p->function->dynamic_alignment = symbol->alignment;
        return sum_slot(p, ptx_special_slot(p, PTX_SPECIAL_DYNAMIC_SHARED), offset);
      }
      return ptx_constant_slot(p, shared_offset(p, symbol) + (uint64_t)offset);
    case PTX_LOCAL:
      if (p->function->is_entry) return ptx_constant_slot(p, symbol->offset + (uint64_t)offset);
      return sum_slot(p, ptx_special_slot(p, PTX_SPECIAL_LOCAL_BASE), (int64_t)symbol->offset + offset);
    case PTX_PARAM:
      return ptx_constant_slot(p, symbol->offset + (uint64_t)offset);
    default:
      ptx_fail(p, "\"%s\" has no address", symbol->name);
  }
}
