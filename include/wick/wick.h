/* The whole public C API of wick. */
#ifndef WICK_WICK_H
#define WICK_WICK_H

#include "wick/autograd.h"
#include "wick/base.h"
#include "wick/operators.h"
#include "wick/ops.h"
#include "wick/sym.h"
#include "wick/tensor.h"

#endif
