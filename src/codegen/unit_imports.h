/* Between the ABI and the math functions of a generated unit. Only ever read as text. */
static const struct wk__kernel_imports *wk_imports;
void wk__unit_start(const struct wk__kernel_imports *imports) { wk_imports = imports; }
#define fma wk_imports->fma
#define fmod wk_imports->fmod
#define fmodf wk_imports->fmodf
#define pow wk_imports->pow
#define log2 wk_imports->log2
#define log10 wk_imports->log10
#define log1p wk_imports->log1p
#define erf wk_imports->erf
#define sin wk_imports->sin
#define cos wk_imports->cos
#define floor wk_imports->floor
