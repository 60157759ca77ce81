/* Products of bfloat16 pairs: one instruction multiplies 32 numbers and adds each two to a float32.
 *
 * Keys are multiplied as they lie in memory. Of values, the same cell of two keys comes to lie side
 * by side. Queries and shares are rounded to bfloat16, as torch rounds them between its products.
 */
#ifndef ASSAY_PAIRS_H
#define ASSAY_PAIRS_H

#include "vectors.h"

#if BF16 && WIDE && !NO_PAIRS && defined(__AVX512BF16__)
#define PAIRED 1

#define PAIRS 32 /* bfloat16 numbers of a vector */
#define SOME 4   /* queries that values are mixed for at a time, at most */

/* The pairs of two lines of 32 numbers: of the first four of each eight, and of the others. */
static inline void side_by_side(__m512i one, __m512i two, __m512i *low, __m512i *high) {
    *low = _mm512_unpacklo_epi16(one, two);
    *high = _mm512_unpackhi_epi16(one, two);
}

/* to (32,) += sums of such pairs */
static inline void add_in_order(float *to, __m512 low, __m512 high) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i last =
        _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    keep(to, lanes(to) + (vec)_mm512_permutex2var_ps(low, first, high));
    keep(to + LANES, lanes(to + LANES) + (vec)_mm512_permutex2var_ps(low, last, high));
}

/* to (many, columns) = queries (many, size) · keys (count, size), and up to three columns more, which
 * mean nothing. `next` is what will be read after these keys: it is asked for meanwhile. */
static inline __attribute__((always_inline)) void pair_scores(const real *queries, int64_t many,
                                                              const real *keys, int64_t count,
                                                              int64_t size, int64_t columns,
                                                              const real *next, float *to) {
    for (int64_t j = 0; j < count; j += 4) {
        const real *at[4];
        for (int64_t i = 0; i < 4; i++) {
            at[i] = keys + (j + i < count ? j + i : count - 1) * size;
            for (int64_t c = 0; c < size; c += PAIRS) ask_for(next + (j + i) * size + c);
        }
        for (int64_t q = 0; q < many; q++) {
            __m512 sum[4] = {{0}, {0}, {0}, {0}};
            for (int64_t c = 0; c < size; c += PAIRS) {
                __m512bh query = (__m512bh)_mm512_loadu_si512(queries + q * size + c);
                for (int64_t i = 0; i < 4; i++)
                    sum[i] = _mm512_dpbf16_ps(sum[i], query, (__m512bh)_mm512_loadu_si512(at[i] + c));
            }
            quarter_vec found = totals((vec)sum[0], (vec)sum[1], (vec)sum[2], (vec)sum[3]);
            memcpy(to + q * columns + j, &found, sizeof found);
        }
    }
}

/* out (many, size) += shares (many, columns), `count` of them, · values (count, size), of `many` known
 * queries and `wide` known cells from `c` on. */
static inline __attribute__((always_inline)) void mix_some(const real *shares, int64_t many,
                                                           const real *values, int64_t count,
                                                           int64_t size, int64_t columns, int64_t c,
                                                           int64_t wide, const real *next,
                                                           float *out) {
    __m512 sum[SOME][2 * 2];
    for (int64_t q = 0; q < many; q++)
        for (int64_t i = 0; i < wide / LANES; i++) sum[q][i] = _mm512_setzero_ps();
    for (int64_t j = 0; j < count; j += 2) {
        const real *at = values + j * size + c;
        __m512i pair[2 * 2];
        for (int64_t i = 0; i < wide / PAIRS; i++) {
            const real *here = at + i * PAIRS, *there = next + (here - values);
            ask_for(there);
            ask_for(there + size);
            __m512i two = j + 1 < count ? _mm512_loadu_si512(here + size) : _mm512_setzero_si512();
            side_by_side(_mm512_loadu_si512(here), two, pair + 2 * i, pair + 2 * i + 1);
        }
        for (int64_t q = 0; q < many; q++) {
            int32_t both;
            memcpy(&both, shares + q * columns + j, sizeof both);
            __m512bh share = (__m512bh)_mm512_set1_epi32(both);
            for (int64_t i = 0; i < wide / LANES; i++)
                sum[q][i] = _mm512_dpbf16_ps(sum[q][i], share, (__m512bh)pair[i]);
        }
    }
    for (int64_t q = 0; q < many; q++)
        for (int64_t i = 0; i < wide / PAIRS; i++)
            add_in_order(out + q * size + c + i * PAIRS, sum[q][2 * i], sum[q][2 * i + 1]);
}

/* out (many, size) += shares (many, columns), `count` of them, · values (count, size); `next` as above. */
static inline __attribute__((always_inline)) void pair_mix(const real *shares, int64_t many,
                                                           const real *values, int64_t count,
                                                           int64_t size, int64_t columns,
                                                           const real *next, float *out) {
    int64_t wide = size % (2 * PAIRS) ? PAIRS : 2 * PAIRS;
    for (int64_t q = 0; q < many; q += SOME, shares += SOME * columns, out += SOME * size)
        for (int64_t c = 0; c < size; c += wide)
            switch (many - q) { /* a known number is unrolled */
#define MIX(n) mix_some(shares, n, values, count, size, columns, c, wide, next, out)
            case 1: MIX(1); break;
            case 2: MIX(2); break;
            case 3: MIX(3); break;
            default: MIX(SOME);
#undef MIX
            }
}

#else
#define PAIRED 0
#endif
#endif
