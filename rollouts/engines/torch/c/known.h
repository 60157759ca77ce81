/* Products of queries and shares with keys and values: by pairs, or in float32 without them. */
#ifndef ASSAY_KNOWN_H
#define ASSAY_KNOWN_H

#include "pairs.h"

#if PAIRED
typedef real number; /* of what keys and values are multiplied by */
#define known_scores pair_scores
#define known_mix pair_mix

#else
typedef float number;

#define BLOCK 16 /* keys that are looked at together */
#define MOST 256 /* the largest head */

typedef struct {
    float at[BLOCK * MOST] __attribute__((aligned(64)));
} block; /* keys or values as float32, one after the other */

static inline void widen(const real *from, int64_t count, int64_t size, const real *next, block *to) {
    int64_t cells = count * size;
    for (int64_t i = 0; i < cells; i += LANES) {
        ask_for(next + i);
        keep(to->at + i, load(from + i));
    }
    /* products of what is left over from before, as of tiny numbers, can take long */
    if (count % 4) memset(to->at + cells, 0, sizeof(float) * (size_t)((4 - count % 4) * size));
}

/* Products of a query with the first `count` keys of a block, and with up to three more, which mean
 * nothing. */
static inline void scores(const float *query, const block *keys, int64_t count, int64_t size,
                          float *to) {
    for (int64_t j = 0; j < count; j += 4) {
        const float *at = keys->at + j * size;
        vec a = {0}, b = {0}, c = {0}, d = {0};
        for (int64_t i = 0; i < size; i += LANES) {
            vec q = lanes(query + i);
            a += q * lanes(at + i);
            b += q * lanes(at + size + i);
            c += q * lanes(at + 2 * size + i);
            d += q * lanes(at + 3 * size + i);
        }
        quarter_vec found = totals(a, b, c, d);
        memcpy(to + j, &found, sizeof found);
    }
}

/* out (size,) += shares (count,) · values; four vectors at a time where that fits */
static inline void mix(const float *shares, const block *values, int64_t count, int64_t size,
                       float *out) {
    int64_t i = 0;
    for (; i + 4 * LANES <= size; i += 4 * LANES) {
        vec a = lanes(out + i), b = lanes(out + i + LANES);
        vec c = lanes(out + i + 2 * LANES), d = lanes(out + i + 3 * LANES);
        for (int64_t j = 0; j < count; j++) {
            const float *at = values->at + j * size + i;
            a += shares[j] * lanes(at);
            b += shares[j] * lanes(at + LANES);
            c += shares[j] * lanes(at + 2 * LANES);
            d += shares[j] * lanes(at + 3 * LANES);
        }
        keep(out + i, a);
        keep(out + i + LANES, b);
        keep(out + i + 2 * LANES, c);
        keep(out + i + 3 * LANES, d);
    }
    for (; i < size; i += LANES) {
        vec a = lanes(out + i);
        for (int64_t j = 0; j < count; j++) a += shares[j] * lanes(values->at + j * size + i);
        keep(out + i, a);
    }
}

/* to (many, columns) = queries (many, size) · keys (count, size), and up to three columns more, which
 * mean nothing. `next` is what will be read after these keys: it is asked for meanwhile. */
static inline __attribute__((always_inline)) void known_scores(const float *queries, int64_t many,
                                                               const real *keys, int64_t count,
                                                               int64_t size, int64_t columns,
                                                               const real *next, float *to) {
    block known;
    for (int64_t j = 0; j < count; j += BLOCK) {
        int64_t some = count - j < BLOCK ? count - j : BLOCK;
        widen(keys + j * size, some, size, next + j * size, &known);
        for (int64_t q = 0; q < many; q++)
            scores(queries + q * size, &known, some, size, to + q * columns + j);
    }
}

/* out (many, size) += shares (many, columns), `count` of them, · values (count, size); `next` as above. */
static inline __attribute__((always_inline)) void known_mix(const float *shares, int64_t many,
                                                            const real *values, int64_t count,
                                                            int64_t size, int64_t columns,
                                                            const real *next, float *out) {
    block known;
    for (int64_t j = 0; j < count; j += BLOCK) {
        int64_t some = count - j < BLOCK ? count - j : BLOCK;
        widen(values + j * size, some, size, next + j * size, &known);
        for (int64_t q = 0; q < many; q++)
            mix(shares + q * columns + j, &known, some, size, out + q * size);
    }
}
#endif
#endif
