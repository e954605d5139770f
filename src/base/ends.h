/* What has to be done before the process ends, while the libraries that it uses are still whole. */
#ifndef WICK_BASE_ENDS_H
#define WICK_BASE_ENDS_H

/* `end` is called when the interpreter is finalized, or by exit() in a program that has none, perhaps by both; not in a
 * fork of the process unless that asks for it itself. At most 8 of them, each given once. */
void wk__at_end(void (*end)(void));
/* Calls them, the last one first. */
void wk__run_ends(void);

#endif
