/* A small network learns sin(x), by the C API alone.
 *
 *     cc train_mlp.c $(pkg-config --cflags --libs wick) -lm -o train_mlp && ./train_mlp [steps]
 *
 * A wk_scope owns what calls make inside it, so that they can be nested like arithmetic; a failed call gives NULL and
 * the calls around it pass that on, so that one check at the end is enough. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <wick/wick.h>

enum { SAMPLES = 256, HIDDEN = 64, LAYERS = 3, MEAN = 1 };

typedef struct model {
  wk_tensor *weight[LAYERS], *bias[LAYERS]; /* owned; (out, in) and (out) */
} model;

static wk_value number(double x) { return (wk_value){.tag = WK_VALUE_DOUBLE, .number = x}; }
static wk_value tensor(wk_tensor *t) { return (wk_value){.tag = WK_VALUE_TENSOR, .tensor = t}; }

static void check(wk_status status) {
  if (status == WK_OK) return;
  fprintf(stderr, "%s (%s)\n", wk_error_message(), wk_error_origin());
  exit(1);
}
static wk_tensor *checked(wk_tensor *t) {
  if (!t) check(wk_error_category());
  return t;
}

/* Normal numbers times `scale`, kept beyond the scope, with a gradient. */
static wk_tensor *create_parameter(int64_t rows, int64_t columns, double scale) {
  wk_int size[] = {wk_int_of(rows), wk_int_of(columns)};
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *values = wk_randn(size, columns ? 2 : 1, WK_FLOAT32, (wk_value){0}, NULL);
  wk_tensor *parameter = wk_scope_keep(checked(wk_mul_Scalar(values, number(scale))));
  wk_scope_end(&scope);
  check(wk_set_requires_grad(parameter, true));
  return parameter;
}

static void create_model(model *m) {
  static const int64_t width[LAYERS + 1] = {1, HIDDEN, HIDDEN, 1};
  for (int i = 0; i < LAYERS; i++) {
    m->weight[i] = create_parameter(width[i + 1], width[i], 1 / sqrt((double)width[i]));
    m->bias[i] = create_parameter(width[i + 1], 0, 0.1);
  }
}

static void release_model(model *m) {
  for (int i = 0; i < LAYERS; i++) {
    wk_tensor_release(m->weight[i]);
    wk_tensor_release(m->bias[i]);
  }
}

/* (N, 1) to (N, 1) */
static wk_tensor *forward(const model *m, wk_tensor *x) {
  for (int i = 0; i < LAYERS; i++) {
    x = wk_linear(x, m->weight[i], m->bias[i]);
    if (i < LAYERS - 1) x = wk_tanh(x);
  }
  return x;
}

/* parameter -= rate * gradient, in place: the parameter is also the call's destination. */
static void descend(wk_tensor *parameter, double rate) {
  wk_value arguments[] = {tensor(parameter), tensor(wk_get_grad(parameter)), number(rate)}, result;
  check(wk_call(wk_op_find("sub.Tensor"), arguments, &parameter, &result));
  wk_value_release(&result);
  check(wk_set_grad(parameter, NULL));
}

static double train_step(const model *m, wk_tensor *x, wk_tensor *y, double rate) {
  double loss_value;
  wk_scope scope;
  wk_scope_begin(&scope);
  wk_tensor *loss = checked(wk_mse_loss(forward(m, x), y, MEAN));
  check(wk_backward(loss, NULL));
  check(wk_tensor_item(loss, &loss_value));
  wk_scope_end(&scope);

  bool recording = wk_set_grad_enabled(false);
  for (int i = 0; i < LAYERS; i++) {
    descend(m->weight[i], rate);
    descend(m->bias[i], rate);
  }
  wk_set_grad_enabled(recording);
  return loss_value;
}

int main(int argc, char **argv) {
  int steps = argc > 1 ? atoi(argv[1]) : 1000;
  float inputs[SAMPLES], targets[SAMPLES];
  static const int64_t size[] = {SAMPLES, 1};
  for (int i = 0; i < SAMPLES; i++) {
    inputs[i] = -3 + 6 * (float)i / (SAMPLES - 1);
    targets[i] = sinf(inputs[i]);
  }
  wk_tensor *x = checked(wk_tensor_from_data(inputs, WK_FLOAT32, 2, size));
  wk_tensor *y = checked(wk_tensor_from_data(targets, WK_FLOAT32, 2, size));
  model m;
  wk_manual_seed(0);
  create_model(&m);
  for (int step = 0; step < steps; step++) {
    double loss = train_step(&m, x, y, 0.02);
    if (step % (steps >= 10 ? steps / 10 : 1) == 0 || step == steps - 1) printf("step %4d  loss %.6f\n", step, loss);
  }
  release_model(&m);
  wk_tensor_release(x);
  wk_tensor_release(y);
  return 0;
}
