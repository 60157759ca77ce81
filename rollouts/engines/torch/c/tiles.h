/* Products of many queries with the keys and values of one prompt, by AMX.
 *
 * A tile register holds 16 lines of 64 bytes, and one instruction multiplies two of them. Its second
 * operand has pairs of numbers that are summed over beside each other: of keys these are two cells
 * of a key, of values the same cell of two keys.
 */
#ifndef ASSAY_TILES_H
#define ASSAY_TILES_H

#include "vectors.h"

#if BF16 && WIDE && !NO_TILES && defined(__linux__) && defined(__AMX_BF16__) && defined(__AVX512BF16__)
#define TILES 1
#include <sys/syscall.h>
#include <unistd.h>

#define SIDE 16  /* lines of a tile: queries, or pairs; and float32 cells of a line */
#define PAIRS 32 /* bfloat16 cells of a line */

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

static inline int64_t whole(int64_t count, int64_t side) { return (count + side - 1) / side * side; }

/* Float32 lines as bfloat16; lines beyond `count` are zeros. */
static inline void narrowed(const float *from, int64_t count, int64_t size, real *to) {
    for (int64_t i = 0; i < count * size; i += LANES) store(to + i, lanes(from + i));
    memset(to + count * size, 0, sizeof(real) * (size_t)((whole(count, SIDE) - count) * size));
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

/* Values (length, size) as tiles: of every 32 keys, of every 16 cells, 16 pairs of keys. Of every 32
 * cells the first tile has the first four of each eight, as vectors are interleaved in quarters. */
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
                _mm512_store_si512(to + i * PAIRS, _mm512_unpacklo_epi16(one, two));
                _mm512_store_si512(to + (SIDE + i) * PAIRS, _mm512_unpackhi_epi16(one, two));
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
 * `narrow` has room for 16 lines of shares. */
static inline void tile_mix(const float *shares, const real *paired, int64_t count, int64_t length,
                            int64_t size, int64_t columns, real *narrow, float *mixed) {
    float part[2][SIDE * SIDE] __attribute__((aligned(64)));
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i high = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    int64_t wide = whole(length, PAIRS);
    for (int64_t q = 0; q < count; q += SIDE) {
        int64_t some = count - q < SIDE ? count - q : SIDE;
        for (int64_t i = 0; i < SIDE; i++)
            for (int64_t j = 0; j < wide; j += LANES) {
                int64_t left = i < some ? length - j : 0;
                __mmask16 held = left >= LANES ? 0xffff : left > 0 ? (1 << left) - 1 : 0;
                __m512 x = _mm512_maskz_loadu_ps(held, shares + (q + i) * columns + j);
                store(narrow + i * wide + j, (vec)x);
            }
        for (int64_t c = 0; c < size; c += PAIRS) {
            _tile_zero(0);
            _tile_zero(1);
            for (int64_t j = 0; j < wide; j += PAIRS) {
                const real *at = paired + j * size + c * PAIRS;
                _tile_loadd(2, narrow + j, sizeof(real) * (size_t)wide);
                _tile_loadd(3, at, 64);
                _tile_loadd(4, at + SIDE * PAIRS, 64);
                _tile_dpbf16ps(0, 2, 3);
                _tile_dpbf16ps(1, 2, 4);
            }
            _tile_stored(0, part[0], 64);
            _tile_stored(1, part[1], 64);
            for (int64_t i = 0; i < some; i++) {
                float *to = mixed + (q + i) * size + c;
                __m512 a = _mm512_load_ps(part[0] + i * SIDE), b = _mm512_load_ps(part[1] + i * SIDE);
                keep(to, lanes(to) + (vec)_mm512_permutex2var_ps(a, low, b));
                keep(to + SIDE, lanes(to + SIDE) + (vec)_mm512_permutex2var_ps(a, high, b));
            }
        }
    }
}

#else
#define TILES 0
#endif
#endif
