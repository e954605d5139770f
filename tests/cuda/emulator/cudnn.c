/* Descriptors: made, told their attributes, finished, and known for as long as they live (cudnn.h). A rule for each
 * attribute says of what type and how many it is, and whether it must be set. Not for more than one thread at a time.
 *
 * For tests of failures, by ctypes: emulated_cudnn_fail_at(n) lets the n-th call from now on fail for want of memory,
 * and says how many were left; emulated_cudnn_left counts descriptors that live, but not plans that were run. */
#include "cudnn.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The driver's, which the process has loaded. */
int cuMemHostAlloc(void **bytes_of_it, size_t bytes, unsigned flags);
int cuMemFreeHost(void *bytes);

#define API __attribute__((visibility("default")))

enum { CONFIGS = 6 /* that the heuristics know; the first cannot be planned */ };

/* Types of attributes. */
enum {
  OF_HANDLE = 0,
  OF_TYPE = 1,
  OF_BOOL = 2,
  OF_INT64 = 3,
  OF_POINTER = 6,
  OF_HEURISTIC = 8,
  OF_MODE = 14,
  OF_DESCRIPTOR = 15,
  OF_FOLD = 18
};

enum { ANY = -1, OPERATION = -2 };

typedef struct rule {
  int kind, attribute, type;
  int count; /* ANY: one at least */
  bool needed;
  int of; /* of descriptors: their kind, or any operation */
} rule;

static const rule rules[] = {
    {POINT, 0, OF_MODE, 1, true, 0},
    {POINT, 1, OF_TYPE, 1, true, 0},
    {POINT, 9, OF_INT64, 1, false, 0},
    {HEURISTICS, 200, OF_HEURISTIC, 1, true, 0},
    {HEURISTICS, 201, OF_DESCRIPTOR, 1, true, GRAPH},
    {PLAN, 401, OF_DESCRIPTOR, 1, true, CONFIG},
    {POINT_OPERATION, 750, OF_DESCRIPTOR, 1, true, POINT},
    {POINT_OPERATION, 751, OF_DESCRIPTOR, 1, true, TENSOR},
    {POINT_OPERATION, 752, OF_DESCRIPTOR, 1, false, TENSOR},
    {POINT_OPERATION, 753, OF_DESCRIPTOR, 1, true, TENSOR},
    {POINT_OPERATION, 758, OF_DESCRIPTOR, 1, false, TENSOR},
    {GRAPH, 800, OF_HANDLE, 1, true, 0},
    {GRAPH, 801, OF_DESCRIPTOR, ANY, true, OPERATION},
    {TENSOR, 900, OF_INT64, 1, true, 0},
    {TENSOR, 901, OF_TYPE, 1, true, 0},
    {TENSOR, 902, OF_INT64, 4, true, 0},
    {TENSOR, 903, OF_INT64, 4, true, 0},
    {TENSOR, 906, OF_INT64, 1, true, 0},
    {TENSOR, 907, OF_BOOL, 1, false, 0},
    {TENSOR, 908, OF_BOOL, 1, false, 0},
    {PACK, 1000, OF_INT64, ANY, true, 0},
    {PACK, 1001, OF_POINTER, ANY, true, 0},
    {PACK, 1003, OF_POINTER, 1, true, 0},
    {PRODUCT, 1500, OF_TYPE, 1, true, 0},
    {PRODUCT_OPERATION, 1520, OF_DESCRIPTOR, 1, true, TENSOR},
    {PRODUCT_OPERATION, 1521, OF_DESCRIPTOR, 1, true, TENSOR},
    {PRODUCT_OPERATION, 1522, OF_DESCRIPTOR, 1, true, TENSOR},
    {PRODUCT_OPERATION, 1523, OF_DESCRIPTOR, 1, true, PRODUCT},
    {FOLD, 1600, OF_FOLD, 1, true, 0},
    {FOLD, 1601, OF_TYPE, 1, true, 0},
    {FOLD_OPERATION, 1610, OF_DESCRIPTOR, 1, true, TENSOR},
    {FOLD_OPERATION, 1611, OF_DESCRIPTOR, 1, true, TENSOR},
    {FOLD_OPERATION, 1612, OF_DESCRIPTOR, 1, true, FOLD},
    {RESHAPE_OPERATION, 2200, OF_DESCRIPTOR, 1, true, TENSOR},
    {RESHAPE_OPERATION, 2201, OF_DESCRIPTOR, 1, true, TENSOR},
};
enum { RULES = sizeof rules / sizeof *rules };

static descriptor *living;
static int calls_until_failure; /* 0: none fails */

int refuse(int status, const char *why) {
  fprintf(stderr, "cudnn: %s\n", why);
  return status;
}

static bool fails_now(void) { return calls_until_failure && !--calls_until_failure; }

bool lives(const void *d) {
  const descriptor *at = living;
  while (at && at != d) at = at->next;
  return at != NULL;
}

static bool is_operation(int kind) {
  return kind == POINT_OPERATION || kind == PRODUCT_OPERATION || kind == FOLD_OPERATION || kind == RESHAPE_OPERATION;
}

/* ---- attributes ---- */

static const attribute *find(const descriptor *d, int number) {
  for (int i = 0; i < MOST_ATTRIBUTES; i++)
    if (d->attributes[i].count && d->attributes[i].number == number) return &d->attributes[i];
  return NULL;
}

const void *values_of(const descriptor *d, int number, int64_t *count) {
  const attribute *a = find(d, number);
  if (count) *count = a ? a->count : 0;
  return a ? a->values : NULL;
}

int64_t int_of(const descriptor *d, int number, int64_t otherwise) {
  const int64_t *values = values_of(d, number, NULL);
  return values ? *values : otherwise;
}

int enum_of(const descriptor *d, int number) {
  const int *values = values_of(d, number, NULL);
  return values ? *values : -1;
}

bool bool_of(const descriptor *d, int number) {
  const bool *values = values_of(d, number, NULL);
  return values && *values;
}

descriptor *descriptor_of(const descriptor *d, int number) {
  descriptor *const *values = values_of(d, number, NULL);
  return values ? *values : NULL;
}

static size_t width_of(int type) {
  if (type == OF_BOOL) return 1;
  return type == OF_TYPE || type == OF_HEURISTIC || type == OF_MODE || type == OF_FOLD ? 4 : 8;
}

static const rule *rule_of(int kind, int attribute) {
  for (int i = 0; i < RULES; i++)
    if (rules[i].kind == kind && rules[i].attribute == attribute) return &rules[i];
  return NULL;
}

/* Descriptors must be finished, and of the kind. */
static bool are_of(const rule *r, int64_t count, const void *values) {
  descriptor *const *all = values;
  for (int64_t i = 0; r->type == OF_DESCRIPTOR && i < count; i++) {
    if (!lives(all[i]) || !all[i]->finished) return false;
    if (r->of == OPERATION ? !is_operation(all[i]->kind) : all[i]->kind != r->of) return false;
  }
  return true;
}

static int keep(descriptor *d, const rule *r, int64_t count, const void *values) {
  attribute *a = NULL;
  size_t bytes = (size_t)count * width_of(r->type);
  for (int i = MOST_ATTRIBUTES - 1; i >= 0; i--)
    if (!d->attributes[i].count || d->attributes[i].number == r->attribute) a = &d->attributes[i];
  void *copy = a ? malloc(bytes) : NULL;
  if (!copy) return NO_MEMORY;
  free(a->values);
  *a = (attribute){r->attribute, count, memcpy(copy, values, bytes)};
  return 0;
}

API int cudnnBackendSetAttribute(void *given, int attribute, int type, int64_t count, const void *values) {
  descriptor *d = given;
  if (fails_now()) return NO_MEMORY;
  if (!lives(d)) return refuse(BAD_PARAM, "no descriptor");
  const rule *r = rule_of(d->kind, attribute);
  if (d->finished) return refuse(BAD_PARAM, "an attribute of a finished descriptor");
  if (!r || r->type != type) return refuse(BAD_PARAM, "no such attribute, or not of this type");
  if (!values || (r->count == ANY ? count < 1 : count != r->count)) return refuse(BAD_PARAM, "not as many as it has");
  if (!are_of(r, count, values)) return refuse(BAD_PARAM, "a descriptor of another kind, or not finished");
  return keep(d, r, count, values);
}

/* ---- descriptors ---- */

static bool is_kind(int kind) {
  for (int i = 0; i < RULES; i++)
    if (rules[i].kind == kind) return true;
  return kind == CONFIG;
}

API int cudnnBackendCreateDescriptor(int kind, void **out) {
  if (fails_now()) return NO_MEMORY;
  if (!is_kind(kind)) return refuse(BAD_PARAM, "no such kind");
  descriptor *d = calloc(1, sizeof *d);
  if (!d) return NO_MEMORY;
  d->kind = kind;
  d->next = living;
  living = d;
  *out = d;
  return 0;
}

API int cudnnBackendDestroyDescriptor(void *given) {
  descriptor *d = given, **at = &living;
  if (!lives(d)) return refuse(BAD_PARAM, "no descriptor");
  while (*at != d) at = &(*at)->next;
  *at = d->next;
  for (int i = 0; i < MOST_ATTRIBUTES; i++) free(d->attributes[i].values);
  free(d->graph);
  free(d);
  return 0;
}

/* As handles and plans do; the driver refuses it, and ends the capture, while the thread captures. */
static bool may_allocate(void) {
  void *bytes;
  return !cuMemHostAlloc(&bytes, 1, 0) && !cuMemFreeHost(bytes);
}

static int copy_graph(descriptor *to, const descriptor *from) {
  if (!(to->graph = malloc(sizeof *to->graph))) return NO_MEMORY;
  *to->graph = *from->graph;
  return 0;
}

static int finish_graph(descriptor *d) {
  if (!(d->graph = calloc(1, sizeof *d->graph))) return NO_MEMORY;
  return graph_make(d, d->graph);
}

static int finish_heuristics(descriptor *d) {
  enum { BY_RULES = 3 };
  if (enum_of(d, 200) != BY_RULES) return NOT_SUPPORTED;
  int status = copy_graph(d, descriptor_of(d, 201));
  return status ? status : graph_takes(d->graph);
}

static int finish_plan(descriptor *d) {
  const descriptor *config = descriptor_of(d, 401);
  if (!may_allocate()) return refuse(NO_MEMORY, "it plans while something is captured");
  const char *plans = getenv("EMULATED_CUDNN_PLANS");
  if (config->number == 0 || (plans && *plans == '0')) return NOT_SUPPORTED;
  return copy_graph(d, config);
}

static int finish_pack(const descriptor *d) {
  int64_t ids, pointers;
  (void)values_of(d, 1000, &ids), (void)values_of(d, 1001, &pointers);
  return ids == pointers ? 0 : refuse(BAD_PARAM, "not as many pointers as tensors");
}

static int finish(descriptor *d) {
  if (is_operation(d->kind)) return check_operation(d);
  switch (d->kind) {
    case TENSOR:
      return check_tensor(d);
    case GRAPH:
      return finish_graph(d);
    case HEURISTICS:
      return finish_heuristics(d);
    case CONFIG:
      return refuse(BAD_PARAM, "a configuration of nothing");
    case PLAN:
      return finish_plan(d);
    case PACK:
      return finish_pack(d);
    default:
      return 0;
  }
}

API int cudnnBackendFinalize(void *given) {
  descriptor *d = given;
  if (fails_now()) return NO_MEMORY;
  if (!lives(d)) return refuse(BAD_PARAM, "no descriptor");
  if (d->finished) return refuse(BAD_PARAM, "it is finished already");
  for (int i = 0; i < RULES; i++)
    if (rules[i].kind == d->kind && rules[i].needed && !find(d, rules[i].attribute))
      return refuse(BAD_PARAM, "an attribute is missing");
  int status = finish(d);
  d->finished = !status;
  return status;
}

/* How many there are, which may be more than were asked for. */
static int give_configs(const descriptor *heuristics, int64_t asked, int64_t *count, void *const *out) {
  for (int i = 0; i < CONFIGS && i < asked; i++) {
    descriptor *config = out[i];
    if (!lives(config) || config->kind != CONFIG || config->finished) return refuse(BAD_PARAM, "no configuration");
    int status = copy_graph(config, heuristics);
    if (status) return status;
    config->number = i;
    config->finished = true;
  }
  *count = CONFIGS;
  return 0;
}

API int cudnnBackendGetAttribute(void *given, int attribute, int type, int64_t asked, int64_t *count, void *out) {
  const descriptor *d = given;
  if (fails_now()) return NO_MEMORY;
  if (!lives(d) || !d->finished) return refuse(BAD_PARAM, "no descriptor, or not finished");
  if (d->kind == HEURISTICS && attribute == 202 && type == OF_DESCRIPTOR) return give_configs(d, asked, count, out);
  if (d->kind != PLAN || attribute != 402 || type != OF_INT64 || asked != 1)
    return refuse(BAD_PARAM, "nothing that can be asked");
  *(int64_t *)out = WORKSPACE;
  *count = 1;
  return 0;
}

/* ---- the handle ---- */

API size_t cudnnGetVersion(void) {
  const char *text = getenv("EMULATED_CUDNN_VERSION");
  return text ? (size_t)atoi(text) : 91900;
}
API int cudnnCreate(void **out) {
  *out = may_allocate() ? calloc(1, sizeof(handle)) : NULL;
  return *out ? 0 : NO_MEMORY;
}
API int cudnnDestroy(void *h) {
  free(h);
  return 0;
}
API int cudnnSetStream(void *h, void *stream) {
  ((handle *)h)->stream = stream;
  return 0;
}

API int cudnnBackendExecute(void *h, void *plan, void *pack) {
  descriptor *p = plan;
  const descriptor *with = pack;
  if (fails_now()) return NO_MEMORY;
  if (!lives(p) || !lives(with) || p->kind != PLAN || with->kind != PACK || !p->finished || !with->finished)
    return refuse(BAD_PARAM, "no plan, or nothing to run it on");
  int status = graph_run(p, ((handle *)h)->stream, with);
  p->has_run |= !status;
  return status;
}

/* ---- convolutions, which it has not ---- */

#define REFUSED(name) \
  API int name(void) { return NOT_SUPPORTED; }
REFUSED(cudnnCreateTensorDescriptor)
REFUSED(cudnnDestroyTensorDescriptor)
REFUSED(cudnnSetTensorNdDescriptor)
REFUSED(cudnnCreateFilterDescriptor)
REFUSED(cudnnDestroyFilterDescriptor)
REFUSED(cudnnSetFilterNdDescriptor)
REFUSED(cudnnCreateConvolutionDescriptor)
REFUSED(cudnnDestroyConvolutionDescriptor)
REFUSED(cudnnSetConvolutionNdDescriptor)
REFUSED(cudnnSetConvolutionGroupCount)
REFUSED(cudnnSetConvolutionMathType)
REFUSED(cudnnGetConvolutionForwardAlgorithm_v7)
REFUSED(cudnnGetConvolutionBackwardDataAlgorithm_v7)
REFUSED(cudnnGetConvolutionBackwardFilterAlgorithm_v7)
REFUSED(cudnnConvolutionForward)
REFUSED(cudnnConvolutionBackwardData)
REFUSED(cudnnConvolutionBackwardFilter)

/* ---- for tests of failures ---- */

API int emulated_cudnn_fail_at(int n) {
  int left = calls_until_failure;
  calls_until_failure = n;
  return left;
}

API int emulated_cudnn_left(void) {
  int count = 0;
  for (const descriptor *d = living; d; d = d->next) count += !d->has_run;
  return count;
}
