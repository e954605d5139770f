"""Function transforms: vmap, grad, jvp and their kin, each a level of the core (src/levels/levels.h)."""
