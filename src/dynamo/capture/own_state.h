/* What objects of the region's own hold: kept, so that it can be seen later whether it is still so. */
#ifndef WICK_DYNAMO_CAPTURE_OWN_STATE_H
#define WICK_DYNAMO_CAPTURE_OWN_STATE_H

#include "dynamo/session.h"

/* Of all that can be reached from some objects. */
typedef struct wk__own_state wk__own_state;

/* From `root`; given_away: and from what can be seen outside by now. NULL: out of memory, or something among it cannot
 * be compared. */
wk__own_state *wk__own_state_keep(const wk__session *session, PyObject *root, bool given_away);
bool wk__own_state_is_same(const wk__own_state *state);
/* Of what is not the same. 0, or -1 with an exception. */
int wk__own_state_put_back(const wk__own_state *state);
void wk__own_state_release(wk__own_state *state); /* what it holds is buried; NULL: nothing */

#endif
