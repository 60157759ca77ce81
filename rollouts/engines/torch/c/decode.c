/* A step of decoding, from the attention of one layer to that of the next. */

#include "vectors.h"

/* What `between` multiplies and scales by; biases may be null. */
typedef struct {
    const real *o, *o_bias, *norm, *gate_up, *down, *next_norm, *next, *next_bias;
} weights_of;

/* x (rows, hidden) += mixed (rows, inner) · o; x += down(silu(gate) · up) of its norm; out (rows, size)
 * is the product of the norm of that with `next`: queries, keys and values of the next layer, or the
 * logits. Weights are as `pack_weight` left them. scratch: rows · (2 hidden + 3 mlp). 1: no memory. */
int between(const real *mixed, real *x, const weights_of *w, real *scratch, real *out, int64_t rows,
            int64_t hidden, int64_t inner, int64_t mlp, int64_t size, float eps, int threads) {
    real *normed = scratch, *more = normed + rows * hidden, *both = more + rows * hidden;
    real *gated = both + 2 * rows * mlp;
    int failed = product(mixed, w->o, w->o_bias, more, rows, hidden, inner, threads);
    add_norm(x, more, w->norm, x, normed, NULL, rows, hidden, eps, threads);
    failed |= product(normed, w->gate_up, NULL, both, rows, 2 * mlp, hidden, threads);
    silu_mul(both, gated, rows, mlp, threads);
    failed |= product(gated, w->down, NULL, more, rows, hidden, mlp, threads);
    add_norm(x, more, w->next_norm, x, normed, NULL, rows, hidden, eps, threads);
    return failed | product(normed, w->next, w->next_bias, out, rows, size, hidden, threads);
}
