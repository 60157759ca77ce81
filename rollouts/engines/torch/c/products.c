/* Products of a few rows with weights, by AMX.
 *
 * Weights are read once and in order, so what bounds these products is memory: each block of them is
 * asked for while the block before it is multiplied. With many rows it is arithmetic: the results of a
 * block are written while the next one is multiplied, which leaves the units for vectors idle.
 */

#include "tiles.h"

#define BOTH (2 * SIDE)            /* rows, and outputs, that are summed up at a time: four tiles */
#define CACHED ((int64_t)2 << 20) /* bytes of results; more of them go past the caches */

/* Whether this library has products and the processor lets this process use them. */
int multiplies(int threads) {
    (void)threads;
#if TILES
    return tiles_allowed();
#else
    return 0;
#endif
}

/* weight (size, inner) as tiles, 16 outputs after 16; sizes are multiples of 32. */
void pack_weight(const real *weight, real *packed, int64_t size, int64_t inner, int threads) {
#if TILES
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t n = 0; n < size; n += SIDE)
        paired_keys(weight + n * inner, SIDE, inner, packed + n * inner);
#endif
}

#if TILES
/* Sums of 32 outputs for up to 32 rows, and where they go. */
typedef struct {
    float part[4][SIDE * SIDE] __attribute__((aligned(64)));
    vec low, high;   /* the bias of 16 outputs each */
    real *to;        /* results of the first row */
    int64_t apart;   /* from there to those of the next */
    int rows, done;  /* how many there are, and are written */
    int gates, past; /* 16 gates and what they open; written from the caches on */
} sums;

/* 32 results of a row: `to` (32,), from the caches on where they are too many for those. */
static inline void store_sums(vec low, vec high, int past, real *to) {
    __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)high, (__m512)low);
    if (past)
        _mm512_stream_si512((__m512i *)to, both);
    else
        _mm512_store_si512(to, both);
}

/* The same for 16 gates and what they open: `to` (16,). Both are rounded before they are multiplied. */
static inline void store_gated(vec gate, vec up, real *to) {
    real both[BOTH] __attribute__((aligned(64)));
    store_sums(gate, up, 0, both);
    store(to, gated(load(both), load(both + SIDE)));
}

/* Write the results of `count` more rows, or of those that are left. */
static inline void write_rows(sums *of, int count) {
    for (; count && of->done < of->rows; count--, of->done++) {
        const float *sum = of->part[of->done / SIDE * 2] + of->done % SIDE * SIDE;
        vec a = lanes(sum) + of->low, b = lanes(sum + SIDE * SIDE) + of->high;
        real *to = of->to + of->done * of->apart;
        if (of->gates)
            store_gated(a, b, to);
        else
            store_sums(a, b, of->past, to);
    }
}

/* The parts of `now`: 32 outputs of `packed` weights for 32 rows of x, or for the 16 that are left.
 * Meanwhile, for every two tiles, `lines` cache lines of later weights are asked for, from `next` on,
 * and `each` rows of `before` are written. */
static inline void sum_up(sums *now, const real *x, const real *packed, int64_t inner, int two,
                          int lines, const char *next, sums *before, int each) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t k = 0; k < inner; k += PAIRS, next += lines * 64) {
        for (int i = 0; i < lines; i++) ask_for(next + i * 64);
        _tile_loadd(4, x + k, sizeof(real) * (size_t)inner);
        _tile_loadd(6, packed + k * SIDE, 64);
        _tile_loadd(7, packed + (inner + k) * SIDE, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (two) {
            _tile_loadd(5, x + SIDE * inner + k, sizeof(real) * (size_t)inner);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        write_rows(before, each);
    }
    _tile_stored(0, now->part[0], 64);
    _tile_stored(1, now->part[1], 64);
    _tile_stored(2, now->part[2], 64);
    _tile_stored(3, now->part[3], 64);
}
#endif

/* out (rows, size) = x (rows, inner) · weightᵀ + bias, the weight as `pack_weight` left it; bias
 * (size,) may be null. With `gates` the weight has 16 gates, then the 16 that they open, and so on, and
 * out (rows, size / 2) = silu(gate) * up. `out` begins at a multiple of 64 bytes. 1: no memory. */
int product(const real *x, const real *packed, const real *bias, real *out, int64_t rows, int64_t size,
            int64_t inner, int gates, int threads) {
#if TILES
    if (!rows) return 0;
    int64_t apart = gates ? size / 2 : size, all = whole(rows, SIDE), blocks = (all + BOTH - 1) / BOTH;
    int past = rows * size * (int64_t)sizeof(real) > CACHED;
    int lines = (int)((BOTH + blocks - 1) / blocks); /* of the 32 of two tiles */
    int each = (int)((BOTH * PAIRS + inner - 1) / inner);
    int claim = !past && blocks > 3; /* lines of results before they are written */
    real *padded = NULL;
    if (all > rows) {
        padded = aligned_alloc(64, sizeof(real) * (size_t)(all * inner));
        if (!padded) return 1;
        memcpy(padded, x, sizeof(real) * (size_t)(rows * inner));
        memset(padded + rows * inner, 0, sizeof(real) * (size_t)((all - rows) * inner));
        x = padded;
    }
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        sums two[2], *now = two, *before = two + 1;
        for (int i = 0; i < 2; i++) {
            two[i].rows = two[i].done = 0;
            two[i].apart = apart;
            two[i].gates = gates;
            two[i].past = past;
        }
        tile_sizes set;
        begin_tiles(&set);
#pragma omp for schedule(static)
        for (int64_t n = 0; n < size; n += BOTH) {
            const real *here = packed + n * inner;
            const char *next = (const char *)(here + BOTH * inner);
            for (int64_t row = 0; row < rows; row += BOTH, next += lines * inner * 2) {
                sum_up(now, x + row * inner, here, inner, row + SIDE < all, lines, next, before, each);
                now->low = bias ? load(bias + n) : (vec){0};
                now->high = bias ? load(bias + n + SIDE) : (vec){0};
                now->to = out + row * apart + (gates ? n / 2 : n);
                now->rows = rows - row < BOTH ? (int)(rows - row) : BOTH;
                now->done = 0;
                for (int i = 0; claim && i < now->rows; i++)
                    __builtin_prefetch(now->to + i * apart, 1);
                sums *full = now;
                now = before;
                before = full;
            }
        }
        write_rows(before, BOTH);
        end_tiles(&set);
        _mm_sfence();
    }
    free(padded);
#endif
    return 0;
}
