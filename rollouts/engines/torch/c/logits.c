/* Sampling from logits. */

#include "vectors.h"

#define PART 256 /* logits whose sum is kept */

/* What sampling needs of logits (rows, size), read as float32: the greatest and its first place, and
 * of every PART columns the greatest and the sum of e^((x - greatest of the row) / temperature).
 * Logits that are not numbers make sums that are none. */
void weigh(const real *logits, int64_t rows, int64_t size, float temperature, int64_t *best,
           float *peaks, float *tops, double *sums, int threads) {
    int64_t parts = (size + PART - 1) / PART;
    float inverse = 1.0f / temperature; /* a vector's division takes as long as 16 products */
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; row++) {
        const real *at = logits + row * size;
        float *highest = tops + row * parts;
        int64_t part = 0;
        for (int64_t p = 0; p < parts; p++) {
            int64_t end = (p + 1) * PART < size ? (p + 1) * PART : size;
            vec most = load(at + p * PART);
            for (int64_t i = p * PART + LANES; i < end; i += LANES) {
                most = larger(most, load(at + i));
            }
            float top = most[0];
            for (int i = 1; i < LANES; i++) top = most[i] > top ? most[i] : top;
            highest[p] = top;
            if (top > highest[part]) part = p;
        }
        float peak = highest[part];
        peaks[row] = peak;
        best[row] = part * PART;
        for (int64_t i = part * PART; i < size && i < (part + 1) * PART; i += LANES) {
            vec x = load(at + i);
            int lane = 0;
            while (lane < LANES && x[lane] != peak) lane++;
            if (lane < LANES) {
                best[row] = i + lane;
                break;
            }
        }
        for (int64_t p = 0; p < parts; p++) {
            int64_t end = (p + 1) * PART < size ? (p + 1) * PART : size;
            vec sum = {0};
            for (int64_t i = p * PART; i < end; i += LANES)
                sum += exponential((load(at + i) - peak) * inverse);
            sums[row * parts + p] = total(sum);
        }
    }
}

typedef struct {
    float value;
    int64_t at;
} found;

static int compare(const void *a, const void *b) {
    const found *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* The `count` greatest of each row, the greatest first and equal ones in their order. `tops` are
 * those of `weigh`; at least `count` logits of a row reach `least`. Returns 1 without memory. */
int greatest(const real *logits, int64_t rows, int64_t size, const float *tops, const float *least,
             int64_t count, float *values, int64_t *places, int threads) {
    int64_t parts = (size + PART - 1) / PART;
    int failed = 0;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; row++) {
        const real *at = logits + row * size;
        int64_t whole = 0, some = 0;
        for (int64_t p = 0; p < parts; p++) whole += tops[row * parts + p] >= least[row];
        found *all = malloc(sizeof(found) * (size_t)(whole * PART + 1));
        if (!all) {
#pragma omp atomic write
            failed = 1;
            continue;
        }
        for (int64_t p = 0; p < parts; p++) {
            if (!(tops[row * parts + p] >= least[row])) continue;
            int64_t end = (p + 1) * PART < size ? (p + 1) * PART : size;
            for (int64_t i = p * PART; i < end; i += LANES) {
                vec x = load(at + i);
                if (!any(x >= (vec){0} + least[row])) continue;
                for (int lane = 0; lane < LANES; lane++)
                    if (x[lane] >= least[row]) all[some++] = (found){x[lane], i + lane};
            }
        }
        qsort(all, (size_t)some, sizeof *all, compare);
        for (int64_t i = 0; i < count; i++) {
            found one = i < some ? all[i] : (found){-__builtin_inff(), 0};
            values[row * count + i] = one.value;
            places[row * count + i] = one.at;
        }
        free(all);
    }
    return failed;
}
