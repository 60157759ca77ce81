/* Lines that do not fill vectors, and squares of cells that are turned. */
#ifndef ASSAY_CELLS_H
#define ASSAY_CELLS_H

#include "vectors.h"

/* `count` cells, or LANES of more; the others are `fill`. */
static inline vec load_some(const real *from, int64_t count, float fill) {
    if (count >= LANES) return load(from);
    const ints place = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    real cells[LANES] = {0};
#if WIDE && BF16
    __m256i some = _mm256_maskz_loadu_epi16((__mmask16)((1u << count) - 1), from);
    memcpy(cells, &some, sizeof cells);
#elif WIDE
    __m512 some = _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
    memcpy(cells, &some, sizeof cells);
#else
    memcpy(cells, from, sizeof(real) * (size_t)count);
#endif
    return chosen(place < (int32_t)count, load(cells), (vec){0} + fill);
}

static inline void store_some(real *to, vec x, int64_t count) {
    if (count >= LANES) {
        store(to, x);
        return;
    }
    real cells[LANES];
    store(cells, x);
#if WIDE && BF16
    __m256i some;
    memcpy(&some, cells, sizeof some);
    _mm256_mask_storeu_epi16(to, (__mmask16)((1u << count) - 1), some);
#elif WIDE
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), (__m512)x);
#else
    memcpy(to, cells, sizeof(real) * (size_t)count);
#endif
}

/* Both halves of two vectors' cells, in turn. */
#if BF16
typedef shorts cells;
#else
typedef vec cells;
#endif
#if defined(__clang__) || __GNUC__ >= 12
#define ZIP(a, b, n) \
    __builtin_shufflevector(a, b, n, n + 16, n + 1, n + 17, n + 2, n + 18, n + 3, n + 19, n + 4, \
                            n + 20, n + 5, n + 21, n + 6, n + 22, n + 7, n + 23)
#else
#if BF16
typedef shorts places;
#else
typedef ints places;
#endif
#define ZIP(a, b, n) \
    __builtin_shuffle(a, b, (places){n, n + 16, n + 1, n + 17, n + 2, n + 18, n + 3, n + 19, n + 4, \
                                     n + 20, n + 5, n + 21, n + 6, n + 22, n + 7, n + 23})
#endif

/* A square of LANES × LANES: four times, each cell's place of eight bits turned by one. */
static inline void turn_square(const real *from, int64_t line, real *to, int64_t other) {
    cells one[LANES], two[LANES];
    for (int i = 0; i < LANES; i++) memcpy(&one[i], from + i * line, sizeof one[i]);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < LANES / 2; i++) {
            two[2 * i] = ZIP(one[i], one[i + LANES / 2], 0);
            two[2 * i + 1] = ZIP(one[i], one[i + LANES / 2], 8);
        }
        for (int i = 0; i < LANES / 2; i++) {
            one[2 * i] = ZIP(two[i], two[i + LANES / 2], 0);
            one[2 * i + 1] = ZIP(two[i], two[i + LANES / 2], 8);
        }
    }
    for (int i = 0; i < LANES; i++) memcpy(to + i * other, &one[i], sizeof one[i]);
}

#endif
