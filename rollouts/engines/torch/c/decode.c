/* A step of decoding, from the attention of one layer to that of the next. */

#include "vectors.h"

/* What `between` multiplies and scales by; biases may be null. */
typedef struct {
    const real *o, *o_bias, *norm, *gate_up, *down, *next_norm, *next, *next_bias;
} weights_of;

/* x (rows, hidden) += mixed (rows, inner) · o; x += down(silu(gate) · up) of its norm; out (rows, size)
 * is the product of the norm of that with `next`: queries, keys and values of the next layer, or the
 * logits. Weights are as `pack_weight` left them, those of gates
 * and ups in turns. scratch: rows · (2 hidden + mlp). 1: no memory. */
int between(const real *mixed, real *x, const weights_of *w, real *scratch, real *out, int64_t rows,
            int64_t hidden, int64_t inner, int64_t mlp, int64_t size, float eps, int threads) {
    real *normed = scratch, *more = normed + rows * hidden, *inside = more + rows * hidden;
    int failed = product(mixed, w->o, w->o_bias, more, rows, hidden, inner, 0, threads);
    add_norm(x, more, w->norm, x, normed, NULL, rows, hidden, eps, threads);
    failed |= product(normed, w->gate_up, NULL, inside, rows, 2 * mlp, hidden, 1, threads);
    failed |= product(inside, w->down, NULL, more, rows, hidden, mlp, 0, threads);
    add_norm(x, more, w->next_norm, x, normed, NULL, rows, hidden, eps, threads);
    return failed | product(normed, w->next, w->next_bias, out, rows, size, hidden, 0, threads);
}
