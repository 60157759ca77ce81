/* Norms and gates: what lies between the matrix products of a layer. */

#include "vectors.h"

/* sum = x + more and normed = rms_norm(sum) * weight. Without `more` the sum is x. `sum` may be x, or
 * null where there is no `more`. scales (rows,): what each row was multiplied by; null: not kept. */
void add_norm(const real *x, const real *more, const real *weight, real *sum, real *normed,
              float *scales, int64_t rows, int64_t size, float eps, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; row++) {
        const real *at = x + row * size;
        vec squares = {0};
        if (more) {
            for (int64_t i = 0; i < size; i += LANES) {
                store(sum + row * size + i, load(at + i) + load(more + row * size + i));
                vec v = load(sum + row * size + i);
                squares += v * v;
            }
            at = sum + row * size;
        } else {
            for (int64_t i = 0; i < size; i += LANES) squares += load(at + i) * load(at + i);
        }
        float scale = inverse_root(total(squares) / (float)size + eps);
        if (scales) scales[row] = scale;
        for (int64_t i = 0; i < size; i += LANES)
            store(normed + row * size + i, load(at + i) * scale * load(weight + i));
    }
}

/* out (rows, size) = silu(gate) * up, from rows of gate and up, one after the other. */
void silu_mul(const real *both, real *out, int64_t rows, int64_t size, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; row++) {
        const real *gate = both + 2 * row * size, *up = gate + size;
        for (int64_t i = 0; i < size; i += LANES)
            store(out + row * size + i, gated(load(gate + i), load(up + i)));
    }
}
