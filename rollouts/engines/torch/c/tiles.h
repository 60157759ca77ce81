/* Products of many queries with the keys and values of one prompt, by AMX.
 *
 * A tile register holds 16 lines of 64 bytes, and one instruction multiplies two of them. Its second
 * operand has pairs of numbers that are summed over beside each other: of keys these are two cells
 * of a key, of values the same cell of two keys.
 */
#ifndef ASSAY_TILES_H
#define ASSAY_TILES_H

#include "pairs.h"

#if PAIRED && !NO_TILES && defined(__linux__) && defined(__AMX_BF16__)
#define TILES 1
#include <sys/syscall.h>
#include <unistd.h>

#define SIDE 16 /* lines of a tile: queries, or pairs; and float32 cells of a line */

typedef struct {
    uint8_t palette, first, unused[14];
    uint16_t bytes[16];
    uint8_t lines[16];
} __attribute__((aligned(64))) tile_sizes;

/* Whether the system lets this process use tiles: Linux wants to be asked. */
static int tiles_allowed(void) {
    static int known = 0; /* 1 yes, 2 no; two threads would find the same */
    int found = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!found) {
        found = syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* tile data */) ? 2 : 1;
        __atomic_store_n(&known, found, __ATOMIC_RELAXED);
    }
    return found == 1;
}

/* Set all tiles to their full size; `before` is what end_tiles sets again. */
static inline void begin_tiles(tile_sizes *before) {
    tile_sizes full = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        full.bytes[i] = 64;
        full.lines[i] = SIDE;
    }
    _tile_storeconfig(before);
    _tile_loadconfig(&full);
}

static inline void end_tiles(const tile_sizes *before) {
    if (before->palette)
        _tile_loadconfig(before);
    else
        _tile_release();
}

/* The transpose of 16 lines of 16 cells of 32 bits. */
static inline void turn(__m512i *line) {
    __m512i a[16], b[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_epi32(line[i], line[i + 1]);
        a[i + 1] = _mm512_unpackhi_epi32(line[i], line[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            b[i + 2 * j] = _mm512_unpacklo_epi64(a[i + j], a[i + j + 2]);
            b[i + 2 * j + 1] = _mm512_unpackhi_epi64(a[i + j], a[i + j + 2]);
        }
    for (int i = 0; i < 4; i++) {
        a[i] = _mm512_shuffle_i32x4(b[i], b[i + 4], 0x88);
        a[i + 4] = _mm512_shuffle_i32x4(b[i], b[i + 4], 0xdd);
        a[i + 8] = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0x88);
        a[i + 12] = _mm512_shuffle_i32x4(b[i + 8], b[i + 12], 0xdd);
    }
    for (int i = 0; i < 8; i++) {
        line[i] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0x88);
        line[i + 8] = _mm512_shuffle_i32x4(a[i], a[i + 8], 0xdd);
    }
}

/* Keys (length, size) as tiles: of every 16 keys, of every 32 cells, 16 pairs of cells. */
static inline void paired_keys(const real *keys, int64_t length, int64_t size, real *to) {
    for (int64_t j = 0; j < length; j += SIDE)
        for (int64_t c = 0; c < size; c += PAIRS, to += SIDE * PAIRS) {
            __m512i line[SIDE];
            for (int64_t i = 0; i < SIDE; i++) {
                const real *at = keys + (j + i) * size + c;
                __builtin_prefetch(at + SIDE * size * 4);
                line[i] = j + i < length ? _mm512_loadu_si512(at) : _mm512_setzero_si512();
            }
            turn(line);
            for (int64_t i = 0; i < SIDE; i++) _mm512_store_si512(to + i * PAIRS, line[i]);
        }
}

/* Values (length, size) as tiles: of every 32 keys, of every 16 cells, 16 pairs of keys. Of
 * every 32 cells the first tile has the first four of each eight. */
static inline void paired_values(const real *values, int64_t length, int64_t size, real *to) {
    for (int64_t j = 0; j < length; j += PAIRS)
        for (int64_t c = 0; c < size; c += PAIRS, to += 2 * SIDE * PAIRS)
            for (int64_t i = 0; i < SIDE; i++) {
                const real *at = values + (j + 2 * i) * size + c;
                __m512i none = _mm512_setzero_si512();
                __builtin_prefetch(at + PAIRS * size * 2);
                __builtin_prefetch(at + PAIRS * size * 2 + size);
                __m512i one = j + 2 * i < length ? _mm512_loadu_si512(at) : none;
                __m512i two = j + 2 * i + 1 < length ? _mm512_loadu_si512(at + size) : none;
                side_by_side(one, two, &one, &two);
                _mm512_store_si512(to + i * PAIRS, one);
                _mm512_store_si512(to + (SIDE + i) * PAIRS, two);
            }
}

/* scores (queries, columns) = queries (count, size) · keys, paired as above. Both counts are made
 * whole, so there is room for 15 lines and columns more. */
static inline void tile_scores(const real *queries, const real *paired, int64_t count, int64_t length,
                               int64_t size, int64_t columns, float *scores) {
    for (int64_t j = 0; j < length; j += SIDE, paired += SIDE * size)
        for (int64_t q = 0; q < count; q += SIDE) {
            _tile_zero(0);
            for (int64_t c = 0; c < size; c += PAIRS) {
                _tile_loadd(1, queries + q * size + c, sizeof(real) * (size_t)size);
                _tile_loadd(2, paired + c * SIDE, 64);
                _tile_dpbf16ps(0, 1, 2);
            }
            _tile_stored(0, scores + q * columns + j, sizeof(float) * (size_t)columns);
        }
}

/* mixed (count, size) += shares (count, columns), of `length` of them, · values, paired as above.
 * Both counts are made whole; shares beyond `length` meet zeros. */
static inline void tile_mix(const real *shares, const real *paired, int64_t count, int64_t length,
                            int64_t size, int64_t columns, float *mixed) {
    float part[2][SIDE * SIDE] __attribute__((aligned(64)));
    for (int64_t q = 0; q < count; q += SIDE)
        for (int64_t c = 0; c < size; c += PAIRS) {
            _tile_zero(0);
            _tile_zero(1);
            for (int64_t j = 0; j < length; j += PAIRS) {
                const real *at = paired + j * size + c * PAIRS;
                _tile_loadd(2, shares + q * columns + j, sizeof(real) * (size_t)columns);
                _tile_loadd(3, at, 64);
                _tile_loadd(4, at + SIDE * PAIRS, 64);
                _tile_dpbf16ps(0, 2, 3);
                _tile_dpbf16ps(1, 2, 4);
            }
            _tile_stored(0, part[0], 64);
            _tile_stored(1, part[1], 64);
            for (int64_t i = 0; i < SIDE && q + i < count; i++)
                add_in_order(mixed + (q + i) * size + c, _mm512_load_ps(part[0] + i * SIDE),
                             _mm512_load_ps(part[1] + i * SIDE));
        }
}

#else
#define TILES 0
#endif
#endif
