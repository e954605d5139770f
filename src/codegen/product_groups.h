/* Products of groups: which extent of a product is cut into parts, each of which goes with a matrix of its own. The
 * ends of the parts are int32 in the device's memory. Shared with code for the device. */
#ifndef WICK_CODEGEN_PRODUCT_GROUPS_H
#define WICK_CODEGEN_PRODUCT_GROUPS_H

typedef enum wk__product_groups {
  WK__GROUPS_NONE,
  WK__GROUPS_OF_ROWS,    /* (rows, k) by (groups, k, n) */
  WK__GROUPS_OF_COLUMNS, /* (groups, m, k) by (k, columns) */
  WK__GROUPS_OF_K        /* (m, k) by (k, n): (groups, m, n) */
} wk__product_groups;

#endif
