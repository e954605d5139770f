/* The one variable of gil.h. */
#include "dynamo/gil.h"

_Thread_local PyThreadState *wk__gil_given;
