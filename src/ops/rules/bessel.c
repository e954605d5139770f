/* Bessel's functions, the modified ones, Airy's function: bodies written with the operations of the loop IR.
 * In: operands of any real dtype. Computed in float64 and rounded once.
 * Sources of the figures: Cephes (rational functions and Chebyshev series of S. Moshier), as SciPy and PyTorch have
 * them. Tests: tests/ops/ (values, finite differences), tests/python/test_special.py (ends of ranges). */
#include <math.h>

#include "ops/internal.h"
#include "ops/rules.h"
#include "ops/rules/special.h"
#include "wick/operators.h"

/* ---- a series of Chebyshev polynomials of x / 2, the last coefficient halved ---- */

static wk__var chebyshev(handler h, wk__var x, const double *c, int n) {
  wk__var before = number(h, 0), last = number(h, 0), sum = number(h, c[0]);
  for (int i = 1; i < n; i++) {
    before = last;
    last = sum;
    sum = plus(h, wk__k_sub(h, wk__k_mul(h, x, last), before), c[i]);
  }
  return times(h, wk__k_sub(h, sum, before), 0.5);
}
static wk__var ratio(handler h, wk__var x, const double *p, int np, const double *q, int nq) {
  return wk__k_div(h, polynomial(h, x, p, np), polynomial(h, x, q, nq));
}
#define RATIO(h, x, p, q) ratio(h, x, p, COUNT(p), q, COUNT(q))

/* ---- of the first and second kind: orders 0 and 1 ---- */

static const double j0_pp[] = {7.96936729297347051624e-4, 8.28352392107440799803e-2, 1.23953371646414299388,
                               5.44725003058768775090,    8.74716500199817011941,    5.30324038235394892183,
                               9.99999999999999997821e-1};
static const double j0_pq[] = {9.24408810558863637013e-4, 8.56288474354474431428e-2, 1.25352743901058953537,
                               5.47097740330417105182,    8.76190883237069594232,    5.30605288235394617618,
                               1.00000000000000000218};
static const double j0_qp[] = {-1.13663838898469149931e-2, -1.28252718670509318512,   -1.95539544257735972385e1,
                               -9.32060152123768231369e1,  -1.77681167980488050595e2, -1.47077505154951170175e2,
                               -5.14105326766599330220e1,  -6.05014350600728481186};
static const double j0_qq[] = {6.43178256118178023184e1, 8.56430025976980587198e2, 3.88240183605401609683e3,
                               7.24046774195652478189e3, 5.93072701187316984827e3, 2.06209331660327847417e3,
                               2.42005740240291393179e2};
static const double j0_rp[] = {-4.79443220978201773821e9, 1.95617491946556577543e12, -2.49248344360967716204e14,
                               9.70862251047306323952e15};
static const double j0_rq[] = {4.99563147152651017219e2,  1.73785401676374683123e5,  4.84409658339962045305e7,
                               1.11855537045356834862e10, 2.11277520115489217587e12, 3.10518229857422583814e14,
                               3.18121955943204943306e16, 1.71086294081043136091e18};
static const double j1_pp[] = {7.62125616208173112003e-4, 7.31397056940917570436e-2, 1.12719608129684925192,
                               5.11207951146807644818,    8.42404590141772420927,    5.21451598682361504063,
                               1.00000000000000000254};
static const double j1_pq[] = {5.71323128072548699714e-4, 6.88455908754495404082e-2, 1.10514232634061696926,
                               5.07386386128601488557,    8.39985554327604159757,    5.20982848682361821619,
                               9.99999999999999997461e-1};
static const double j1_qp[] = {5.10862594750176621635e-2, 4.98213872951233449420,   7.58238284132545283818e1,
                               3.66779609360150777800e2,  7.10856304998926107277e2, 5.97489612400613639965e2,
                               2.11688757100572135698e2,  2.52070205858023719784e1};
static const double j1_qq[] = {7.42373277035675149943e1, 1.05644886038262816351e3, 4.98641058337653607651e3,
                               9.56231892404756170795e3, 7.99704160447350683650e3, 2.82619278517639096600e3,
                               3.36093607810698293419e2};
static const double j1_rp[] = {-8.99971225705559398224e8, 4.52228297998194034323e11, -7.27494245221818276015e13,
                               3.68295732863852883286e15};
static const double j1_rq[] = {6.20836478118054335476e2,  2.56987256757748830383e5,  8.35146791431949253037e7,
                               2.21511595479792499675e10, 4.74914122079991414898e12, 7.84369607876235854894e14,
                               8.95222336184627338078e16, 5.32278620332680085395e18};
static const double y0_yp[] = {1.55924367855235737965e4,   -1.46639295903971606143e7, 5.43526477051876500413e9,
                               -9.82136065717911466409e11, 8.75906394395366999549e13, -3.46628303384729719441e15,
                               4.42733268572569800351e16,  -1.84950800436986690637e16};
static const double y0_yq[] = {1.04128353664259848412e3,  6.26107330137134956842e5,  2.68919633393814121987e8,
                               8.64002487103935000337e10, 2.02979612750105546709e13, 3.17157752842975028269e15,
                               2.50596256172653059228e17};
static const double y1_yp[] = {1.26320474790178026440e9,   -6.47355876379160291031e11, 1.14509511541823727583e14,
                               -8.12770255501325109621e15, 2.02439475713594898196e17,  -7.78877196265950026825e17};
static const double y1_yq[] = {5.94301592346128195359e2,  2.35564092943068577943e5,  7.34811944459721705660e7,
                               1.87601316108706159478e10, 3.88231277496238566008e12, 6.20557727146953693363e14,
                               6.87141087355300489866e16, 3.97270608116560655612e18};
/* What holds of both kinds above 5: sqrt(2 / (pi x)) (p cos a - q sin a), with a = x - (2 order + 1) pi / 4; the second
 * kind has sine and cosine the other way round. */
static wk__var bessel_far(handler h, wk__var x, int order, bool second) {
  wk__var w = under(h, 5, x), z = square(h, w), angle = plus(h, x, order ? -3 * M_PI_4 : -M_PI_4);
  wk__var p = order ? RATIO(h, z, j1_pp, j1_pq) : RATIO(h, z, j0_pp, j0_pq);
  wk__var q = wk__k_mul(h, w, order ? RATIO(h, z, j1_qp, j1_qq) : RATIO(h, z, j0_qp, j0_qq));
  wk__var c = wk__k_cos(h, angle), s = wk__k_sin(h, angle);
  wk__var sum = second ? wk__k_add(h, wk__k_mul(h, p, s), wk__k_mul(h, q, c))
                       : wk__k_sub(h, wk__k_mul(h, p, c), wk__k_mul(h, q, s));
  return wk__k_div(h, times(h, sum, 0.797884560802865355879892119868763737), wk__k_sqrt(h, x));
}
static wk__var bessel_j0(handler h, wk__var x) {
  wk__var a = wk__k_abs(h, x), z = square(h, a);
  wk__var roots = wk__k_mul(h, plus(h, z, -5.78318596294678452118), plus(h, z, -30.4712623436620863991));
  wk__var near = wk__k_mul(h, roots, RATIO(h, z, j0_rp, j0_rq));
  near = wk__k_where(h, less(h, a, 1e-5), from(h, 1, times(h, z, 0.25)), near);
  return wk__k_where(h, wk__k_le(h, a, number(h, 5)), near, bessel_far(h, a, 0, false));
}
static wk__var bessel_j1(handler h, wk__var x) {
  wk__var a = wk__k_abs(h, x), z = square(h, a);
  wk__var roots = wk__k_mul(h, plus(h, z, -14.6819706421238932572), plus(h, z, -49.2184563216946036703));
  wk__var near = wk__k_mul(h, wk__k_mul(h, RATIO(h, z, j1_rp, j1_rq), a), roots);
  wk__var y = wk__k_where(h, wk__k_le(h, a, number(h, 5)), near, bessel_far(h, a, 1, false));
  return wk__k_where(h, less(h, x, 0), wk__k_neg(h, y), y);
}
/* The second kind has no values below 0, and minus infinity at 0. */
static wk__var right_of_pole(handler h, wk__var x, wk__var y, double at_zero) {
  y = wk__k_where(h, wk__k_eq(h, x, number(h, 0)), number(h, at_zero), y);
  return wk__k_where(h, less(h, x, 0), number(h, NAN), y);
}
static wk__var bessel_y0(handler h, wk__var x) {
  wk__var z = square(h, x), product = wk__k_mul(h, wk__k_log(h, x), bessel_j0(h, x));
  wk__var near = wk__k_add(h, RATIO(h, z, y0_yp, y0_yq), times(h, product, 2 / M_PI));
  wk__var y = wk__k_where(h, wk__k_le(h, x, number(h, 5)), near, bessel_far(h, x, 0, true));
  return right_of_pole(h, x, y, -INFINITY);
}
static wk__var bessel_y1(handler h, wk__var x) {
  wk__var z = square(h, x), product = wk__k_mul(h, bessel_j1(h, x), wk__k_log(h, x));
  wk__var rest = times(h, wk__k_sub(h, product, wk__k_reciprocal(h, x)), 2 / M_PI);
  wk__var near = wk__k_add(h, wk__k_mul(h, x, RATIO(h, z, y1_yp, y1_yq)), rest);
  wk__var y = wk__k_where(h, wk__k_le(h, x, number(h, 5)), near, bessel_far(h, x, 1, true));
  return right_of_pole(h, x, y, -INFINITY);
}
LOWER_SPECIAL(bessel_j0, bessel_j0)
LOWER_SPECIAL(bessel_j1, bessel_j1)
LOWER_SPECIAL(bessel_y0, bessel_y0)
LOWER_SPECIAL(bessel_y1, bessel_y1)

/* sin x / x, and its series where |x| < 1/2 */
static wk__var spherical_j0(handler h, wk__var x) {
  static const double c[] = {1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6, 1};
  wk__var a = wk__k_abs(h, x), near = polynomial(h, square(h, x), c, COUNT(c));
  wk__var y = wk__k_where(h, less(h, a, 0.5), near, wk__k_div(h, wk__k_sin(h, x), x));
  return wk__k_where(h, wk__k_eq(h, a, number(h, INFINITY)), number(h, 0), y);
}
LOWER_SPECIAL(spherical_bessel_j0, spherical_j0)

/* ---- modified ones of the first kind, times e^-|x| ---- */

static const double i0_near[] = {
    -4.41534164647933937950e-18, 3.33079451882223809783e-17, -2.43127984654795469359e-16, 1.71539128555513303061e-15,
    -1.16853328779934516808e-14, 7.67618549860493561688e-14, -4.85644678311192946090e-13, 2.95505266312963983461e-12,
    -1.72682629144155570723e-11, 9.67580903537323691224e-11, -5.18979560163526290666e-10, 2.65982372468238665035e-9,
    -1.30002500998624804212e-8,  6.04699502254191894932e-8,  -2.67079385394061173391e-7,  1.11738753912010371815e-6,
    -4.41673835845875056359e-6,  1.64484480707288970893e-5,  -5.75419501008210370398e-5,  1.88502885095841655729e-4,
    -5.76375574538582365885e-4,  1.63947561694133579842e-3,  -4.32430999505057594430e-3,  1.05464603945949983183e-2,
    -2.37374148058994688156e-2,  4.93052842396707084878e-2,  -9.49010970480476444210e-2,  1.71620901522208775349e-1,
    -3.04682672343198398683e-1,  6.76795274409476084995e-1};
static const double i0_far[] = {
    -7.23318048787475395456e-18, -4.83050448594418207126e-18, 4.46562142029675999901e-17,  3.46122286769746109310e-17,
    -2.82762398051658348494e-16, -3.42548561967721913462e-16, 1.77256013305652638360e-15,  3.81168066935262242075e-15,
    -9.55484669882830764870e-15, -4.15056934728722208663e-14, 1.54008621752140982691e-14,  3.85277838274214270114e-13,
    7.18012445138366623367e-13,  -1.79417853150680611778e-12, -1.32158118404477131188e-11, -3.14991652796324136454e-11,
    1.18891471078464383424e-11,  4.94060238822496958910e-10,  3.39623202570838634515e-9,   2.26666899049817806459e-8,
    2.04891858946906374183e-7,   2.89137052083475648297e-6,   6.88975834691682398426e-5,   3.36911647825569408990e-3,
    8.04490411014108831608e-1};
static const double i1_near[] = {
    2.77791411276104639959e-18, -2.11142121435816608115e-17, 1.55363195773620046921e-16, -1.10559694773538630805e-15,
    7.60068429473540693410e-15, -5.04218550472791168711e-14, 3.22379336594557470981e-13, -1.98397439776494371520e-12,
    1.17361862988909016308e-11, -6.66348972350202774223e-11, 3.62559028155211703701e-10, -1.88724975172282928790e-9,
    9.38153738649577178388e-9,  -4.44505912879632808065e-8,  2.00329475355213526229e-7,  -8.56872026469545474066e-7,
    3.47025130813767847674e-6,  -1.32731636560394358279e-5,  4.78156510755005422638e-5,  -1.61760815825896745588e-4,
    5.12285956168575772895e-4,  -1.51357245063125314899e-3,  4.15642294431288815669e-3,  -1.05640848946261981558e-2,
    2.47264490306265168283e-2,  -5.29459812080949914269e-2,  1.02643658689847095384e-1,  -1.76416518357834055153e-1,
    2.52587186443633654823e-1};
static const double i1_far[] = {
    7.51729631084210481353e-18,  4.41434832307170791151e-18,  -4.65030536848935832153e-17, -3.20952592199342395980e-17,
    2.96262899764595013876e-16,  3.30820231092092828324e-16,  -1.88035477551078244854e-15, -3.81440307243700780478e-15,
    1.04202769841288027642e-14,  4.27244001671195135429e-14,  -2.10154184277266431302e-14, -4.08355111109219731823e-13,
    -7.19855177624590851209e-13, 2.03562854414708950722e-12,  1.41258074366137813316e-11,  3.25260358301548823856e-11,
    -1.89749581235054123450e-11, -5.58974346219658380687e-10, -3.83538038596423702205e-9,  -2.63146884688951950684e-8,
    -2.51223623787020892529e-7,  -3.88256480887769039346e-6,  -1.10588938762623716291e-4,  -9.76109749136146840777e-3,
    7.78576235018280120474e-1};
static wk__var i0_scaled(handler h, wk__var x) {
  wk__var a = wk__k_abs(h, x), near = chebyshev(h, plus(h, times(h, a, 0.5), -2), i0_near, COUNT(i0_near));
  wk__var far = wk__k_div(h, chebyshev(h, plus(h, under(h, 32, a), -2), i0_far, COUNT(i0_far)), wk__k_sqrt(h, a));
  return wk__k_where(h, wk__k_le(h, a, number(h, 8)), near, far);
}
static wk__var i1_scaled(handler h, wk__var x) {
  wk__var a = wk__k_abs(h, x);
  wk__var near = wk__k_mul(h, a, chebyshev(h, plus(h, times(h, a, 0.5), -2), i1_near, COUNT(i1_near)));
  wk__var far = wk__k_div(h, chebyshev(h, plus(h, under(h, 32, a), -2), i1_far, COUNT(i1_far)), wk__k_sqrt(h, a));
  wk__var y = wk__k_where(h, wk__k_le(h, a, number(h, 8)), near, far);
  return wk__k_where(h, less(h, x, 0), wk__k_neg(h, y), y);
}
static wk__var unscaled(handler h, wk__var x, wk__var y) { return wk__k_mul(h, wk__k_exp(h, wk__k_abs(h, x)), y); }
static wk__var i0_of(handler h, wk__var x) { return unscaled(h, x, i0_scaled(h, x)); }
static wk__var i1_of(handler h, wk__var x) { return unscaled(h, x, i1_scaled(h, x)); }
LOWER_SPECIAL(i0, i0_of)
LOWER_SPECIAL(i0e, i0_scaled)
LOWER_SPECIAL(i1, i1_of)
LOWER_SPECIAL(i1e, i1_scaled)

wk_status wk__vjp_i0(wk__vjp *v) {
  return wk__vjp_set(v, WK__ARG(i0, self), wk_mul(G, wk_special_i1(ARG(WK__ARG(i0, self)))));
}
/* i1e - sign i0e */
wk_status wk__vjp_i0e(wk__vjp *v) {
  wk_tensor *x = ARG(WK__ARG(special_i0e, self));
  return wk__vjp_set(v, WK__ARG(special_i0e, self),
                     wk_mul(G, wk_sub(wk_special_i1e(x), wk_mul(wk_sign(x), RESULT), wk__v_int(1))));
}
/* `whole` - result / x, and 1/2 at 0 */
static wk_tensor *slope_of_i1(wk_tensor *x, wk_tensor *whole, wk_tensor *result) {
  wk_tensor *zero = wk_eq_Scalar(x, wk__v_int(0)), *safe = wk_where_ScalarSelf(zero, wk__v_int(1), x);
  return wk_where_ScalarSelf(zero, wk__v_double(0.5), wk_sub(whole, wk_div(result, safe), wk__v_int(1)));
}
wk_status wk__vjp_i1(wk__vjp *v) {
  return wk__vjp_set(
      v, WK__ARG(special_i1, self),
      wk_mul(G, slope_of_i1(ARG(WK__ARG(special_i1, self)), wk_i0(ARG(WK__ARG(special_i1, self))), RESULT)));
}
wk_status wk__vjp_i1e(wk__vjp *v) {
  wk_tensor *x = ARG(WK__ARG(special_i1e, self)),
            *whole = wk_sub(wk_special_i0e(x), wk_mul(wk_sign(x), RESULT), wk__v_int(1));
  return wk__vjp_set(v, WK__ARG(special_i1e, self), wk_mul(G, slope_of_i1(x, whole, RESULT)));
}

/* ---- modified ones of the second kind, times e^x ---- */

static const double k0_near_c[] = {1.37446543561352307156e-16, 4.25981614279661018399e-14, 1.03496952576338420167e-11,
                                   1.90451637722020886025e-9,  2.53479107902614945675e-7,  2.28621210311945178607e-5,
                                   1.26461541144692592338e-3,  3.59799365153615016266e-2,  3.44289899924628486886e-1,
                                   -5.35327393233902768720e-1};
static const double k0_far[] = {
    5.30043377268626276149e-18, -1.64758043015242134646e-17, 5.21039150503902756861e-17, -1.67823109680541210385e-16,
    5.51205597852431940784e-16, -1.84859337734377901440e-15, 6.34007647740507060557e-15, -2.22751332699166985548e-14,
    8.03289077536357521100e-14, -2.98009692317273043925e-13, 1.14034058820847496303e-12, -4.51459788337394416547e-12,
    1.85594911495471785253e-11, -7.95748924447710747776e-11, 3.57739728140030116597e-10, -1.69753450938905987466e-9,
    8.57403401741422608519e-9,  -4.66048989768794782956e-8,  2.76681363944501510342e-7,  -1.83175552271911948767e-6,
    1.39498137188764993662e-5,  -1.28495495816278026384e-4,  1.56988388573005337491e-3,  -3.14481013119645005427e-2,
    2.44030308206595545468};
static const double k1_near_c[] = {
    -7.02386347938628759343e-18, -2.42744985051936593393e-15, -6.66690169419932900609e-13, -1.41148839263352776110e-10,
    -2.21338763073472585583e-8,  -2.43340614156596823496e-6,  -1.73028895751305206302e-4,  -6.97572385963986435018e-3,
    -1.22611180822657148235e-1,  -3.53155960776544875667e-1,  1.52530022733894777053};
static const double k1_far[] = {
    -5.75674448366501715755e-18, 1.79405087314755922667e-17, -5.68946255844285935196e-17, 1.83809354436663880070e-16,
    -6.05704724837331885336e-16, 2.03870316562433424052e-15, -7.01983709041831346144e-15, 2.47715442448130437068e-14,
    -8.97670518232499435011e-14, 3.34841966607842919884e-13, -1.28917396095102890680e-12, 5.13963967348173025100e-12,
    -2.12996783842756842877e-11, 9.21831518760500529508e-11, -4.19035475934189648750e-10, 2.01504975519703286596e-9,
    -1.03457624656780970260e-8,  5.74108412545004946722e-8,  -3.50196060308781257119e-7,  2.40648494783721712015e-6,
    -1.93619797416608296024e-5,  1.95215518471351631108e-4,  -2.85781685962277938680e-3,  1.03923736576817238437e-1,
    2.72062619048444266945};
static wk__var k_far(handler h, wk__var x, const double *c, int n) {
  return wk__k_div(h, chebyshev(h, plus(h, under(h, 8, x), -2), c, n), wk__k_sqrt(h, x));
}
/* At most 2: not scaled. */
static wk__var k0_near(handler h, wk__var x) {
  wk__var sum = chebyshev(h, plus(h, square(h, x), -2), k0_near_c, COUNT(k0_near_c));
  return wk__k_sub(h, sum, wk__k_mul(h, wk__k_log(h, times(h, x, 0.5)), i0_of(h, x)));
}
static wk__var k1_near(handler h, wk__var x) {
  wk__var sum = wk__k_div(h, chebyshev(h, plus(h, square(h, x), -2), k1_near_c, COUNT(k1_near_c)), x);
  return wk__k_add(h, wk__k_mul(h, wk__k_log(h, times(h, x, 0.5)), i1_of(h, x)), sum);
}
static wk__var k_of(handler h, wk__var x, int order, bool scaled) {
  wk__var near = order ? k1_near(h, x) : k0_near(h, x);
  wk__var far = order ? k_far(h, x, k1_far, COUNT(k1_far)) : k_far(h, x, k0_far, COUNT(k0_far));
  if (scaled)
    near = wk__k_mul(h, near, wk__k_exp(h, x));
  else
    far = wk__k_mul(h, wk__k_exp(h, wk__k_neg(h, x)), far);
  return right_of_pole(h, x, wk__k_where(h, wk__k_le(h, x, number(h, 2)), near, far), INFINITY);
}
static wk__var k0_of(handler h, wk__var x) { return k_of(h, x, 0, false); }
static wk__var k1_of(handler h, wk__var x) { return k_of(h, x, 1, false); }
static wk__var k0_scaled(handler h, wk__var x) { return k_of(h, x, 0, true); }
static wk__var k1_scaled(handler h, wk__var x) { return k_of(h, x, 1, true); }
LOWER_SPECIAL(modified_bessel_k0, k0_of)
LOWER_SPECIAL(modified_bessel_k1, k1_of)
LOWER_SPECIAL(scaled_modified_bessel_k0, k0_scaled)
LOWER_SPECIAL(scaled_modified_bessel_k1, k1_scaled)

/* ---- Airy's function ---- */

static const double airy_an[] = {3.46538101525629032477e-1, 1.20075952739645805542e1, 7.62796053615234516538e1,
                                 1.68089224934630576269e2,  1.59756391350164413639e2, 7.05360906840444183113e1,
                                 1.40264691163389668864e1,  9.99999999999999995305e-1};
static const double airy_ad[] = {5.67594532638770212846e-1, 1.47562562584847203173e1, 8.45138970141474626562e1,
                                 1.77318088145400459522e2,  1.64234692871529701831e2, 7.14778400825575695274e1,
                                 1.40959135607834029598e1,  1.00000000000000000470};
static const double airy_afn[] = {-1.31696323418331795333e-1, -6.26456544431912369773e-1, -6.93158036036933542233e-1,
                                  -2.79779981545119124951e-1, -4.91900132609500318020e-2, -4.06265923594885404393e-3,
                                  -1.59276496239262096340e-4, -2.77649108155232920844e-6, -1.67787698489114633780e-8};
static const double airy_afd[] = {1.33560420706553243746e1,  3.26825032795224613948e1,  2.67367040941499554804e1,
                                  9.18707402907259625840,    1.47529146771666414581,    1.15687173795188044134e-1,
                                  4.40291641615211203805e-3, 7.54720348287414296618e-5, 4.51850092970580378464e-7};
static const double airy_agn[] = {1.97339932091685679179e-2, 3.91103029615688277255e-1, 1.06579897599595591108,
                                  9.39169229816650230044e-1, 3.51465656105547619242e-1, 6.33888919628925490927e-2,
                                  5.85804113048388458567e-3, 2.82851600836737019778e-4, 6.98793669997260967291e-6,
                                  8.11789239554389293311e-8, 3.41551784765923618484e-10};
static const double airy_agd[] = {9.30892908077441974853,    1.98352928718312140417e1,  1.55646628932864612953e1,
                                  5.47686069422975497931,    9.54293611618961883998e-1, 8.64580826352392193095e-2,
                                  4.12656523824222607191e-3, 1.01259085116509135510e-4, 1.17166733214413521882e-6,
                                  4.91834570062930015649e-9};
/* Its power series, for |x| < 2.09: after 16 terms nothing is added. */
static wk__var airy_near(handler h, wk__var x) {
  wk__var f = number(h, 1), g = x, m = number(h, 1), n = x, z = wk__k_mul(h, square(h, x), x);
  for (int k = 0; k < 16; k++) {
    m = times(h, wk__k_mul(h, m, z), 1.0 / ((3 * k + 2) * (3 * k + 3)));
    n = times(h, wk__k_mul(h, n, z), 1.0 / ((3 * k + 3) * (3 * k + 4)));
    f = wk__k_add(h, f, m);
    g = wk__k_add(h, g, n);
  }
  return wk__k_sub(h, times(h, f, 0.355028053887817239260), times(h, g, 0.258819403792806798405));
}
/* Waves, below; `root` is the fourth root of |x|, zeta 2/3 |x|^(3/2). */
static wk__var airy_left(handler h, wk__var zeta, wk__var root) {
  wk__var z = wk__k_reciprocal(h, zeta), z2 = square(h, z), angle = plus(h, zeta, M_PI_4);
  wk__var s = wk__k_mul(h, wk__k_sin(h, angle), plus(h, wk__k_mul(h, z2, RATIO(h, z2, airy_afn, airy_afd)), 1));
  wk__var c = wk__k_mul(h, wk__k_cos(h, angle), wk__k_mul(h, z, RATIO(h, z2, airy_agn, airy_agd)));
  return wk__k_div(h, times(h, wk__k_sub(h, s, c), 1 / sqrt(M_PI)), root);
}
static wk__var airy_right(handler h, wk__var zeta, wk__var root) {
  wk__var sum = times(h, RATIO(h, wk__k_reciprocal(h, zeta), airy_an, airy_ad), 1 / sqrt(M_PI));
  return wk__k_div(h, sum, wk__k_mul(h, times(h, root, 2), wk__k_exp(h, zeta)));
}
static wk__var airy_of(handler h, wk__var x) {
  wk__var a = wk__k_abs(h, x), half = wk__k_sqrt(h, a), zeta = times(h, wk__k_mul(h, a, half), 2.0 / 3);
  wk__var root = wk__k_sqrt(h, half), y = airy_near(h, x);
  y = wk__k_where(h, less(h, x, -2.09), airy_left(h, zeta, root), y);
  y = wk__k_where(h, wk__k_ge(h, x, number(h, 2.09)), airy_right(h, zeta, root), y);
  y = wk__k_where(h, wk__k_gt(h, x, number(h, 103.892)), number(h, 0), y);
  return wk__k_where(h, wk__k_eq(h, a, number(h, INFINITY)), number(h, NAN), y);
}
LOWER_SPECIAL(airy_ai, airy_of)
