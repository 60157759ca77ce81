/* Attention of few queries by AMX: a line of scores is one key's, for 16 queries.
 *
 * Keys are the first operand then, as they lie in memory, and the queries the second: that takes less
 * than to turn the keys, where each meets few queries. The softmax runs over columns of 16 queries.
 */
#ifndef ASSAY_COLUMNS_H
#define ASSAY_COLUMNS_H

#include "rows.h"

#if TILES
/* to (keys, 16) = keys (count, size) · 16 queries, paired; the count is made whole, and lines beyond
 * it mean nothing. `next` is what will be read after these keys: it is asked for meanwhile. */
static inline __attribute__((always_inline)) void column_scores(const real *packed, const real *keys,
                                                                int64_t count, int64_t size,
                                                                const real *next, float *to) {
    real rest[SIDE * 256] __attribute__((aligned(64)));
    size_t line = sizeof(real) * (size_t)size;
    if (size == 2 * PAIRS) {
        _tile_loadd(4, packed, 64);
        _tile_loadd(5, packed + SIDE * PAIRS, 64);
    }
    for (int64_t j = 0; j < count; j += SIDE) {
        const real *at = keys + j * size;
        if (j + SIDE > count) {
            memcpy(rest, at, line * (size_t)(count - j));
            memset(rest + (count - j) * size, 0, line * (size_t)(j + SIDE - count));
            at = rest;
        }
        for (int64_t i = 0; i < SIDE * size; i += PAIRS) ask_for(next + j * size + i);
        _tile_zero(0);
        if (size == 2 * PAIRS) {
            _tile_loadd(1, at, 4 * PAIRS);
            _tile_loadd(2, at + PAIRS, 4 * PAIRS);
            _tile_dpbf16ps(0, 1, 4);
            _tile_dpbf16ps(0, 2, 5);
        } else
            for (int64_t c = 0; c < size; c += PAIRS) {
                _tile_loadd(1, at + c, line);
                _tile_loadd(2, packed + c * SIDE, 64);
                _tile_dpbf16ps(0, 1, 2);
            }
        _tile_stored(0, to + j * SIDE, 64);
    }
}

/* Scores (end, 16) as shares of 1 (16, columns), and zeros for 32 columns more: of each query those of
 * the keys before `seen`, which is no less than `length`. The scores are written over. */
static inline void column_shares(float *scores, int64_t length, int64_t end, __m512i seen,
                                 int64_t columns, real *shares) {
    const __m512 none = _mm512_set1_ps(-1e30f);
    vec peak = (vec)none, sum = {0};
    for (int64_t j = length; j < end; j++) {
        __mmask16 there = _mm512_cmpgt_epi32_mask(seen, _mm512_set1_epi32((int)j));
        __m512 x = _mm512_mask_loadu_ps(none, there, scores + j * SIDE);
        keep(scores + j * SIDE, (vec)x);
        peak = larger(peak, (vec)x);
    }
    for (int64_t j = 0; j < length; j++) peak = larger(peak, lanes(scores + j * SIDE));
    for (int64_t j = 0; j < end; j++) {
        vec x = exponential(lanes(scores + j * SIDE) - peak);
        if (j >= length) /* not even the smallest number */
            x = (vec)_mm512_maskz_mov_ps(
                _mm512_cmpgt_epi32_mask(seen, _mm512_set1_epi32((int)j)), (__m512)x);
        keep(scores + j * SIDE, x);
        sum += x;
    }
    vec inverse = 1.0f / sum;
    for (int64_t j = 0; j < end; j += SIDE) {
        __m512i line[SIDE];
        for (int64_t i = 0; i < SIDE; i++)
            line[i] = j + i < end ? (__m512i)(lanes(scores + (j + i) * SIDE) * inverse)
                                  : _mm512_setzero_si512();
        turn(line);
        for (int64_t i = 0; i < SIDE; i++) store(shares + i * columns + j, (vec)line[i]);
    }
    int64_t from = whole(end, SIDE);
    for (int64_t i = 0; i < SIDE; i++) memset(shares + i * columns + from, 0, sizeof(real) * PAIRS);
}

/* The scores of a row's own keys, in the columns of its `count` queries from the q-th on. */
static inline __attribute__((always_inline)) void own_scores(const real *own, int64_t known,
                                                             int64_t q, int64_t count, int64_t length,
                                                             int64_t size, const real *next,
                                                             const scratch *room) {
    float some[SIDE * SIDE] __attribute__((aligned(64)));
    for (int64_t chunk = q / SIDE * SIDE; chunk < q + count; chunk += SIDE) {
        int64_t from = q > chunk ? q - chunk : 0, upto = q + count - chunk;
        __mmask16 mine = (__mmask16)((upto < SIDE ? (1u << upto) - 1 : 0xffffu) & ~((1u << from) - 1));
        float *scores = room->scores + chunk * room->columns + length * SIDE;
        for (int64_t j = 0; j < known; j += SIDE) {
            int64_t left = known - j < SIDE ? known - j : SIDE;
            column_scores(room->packed + chunk * size, own + j * size, left, size, next + j * size, some);
            for (int64_t i = 0; i < left; i++)
                _mm512_mask_storeu_ps(scores + (j + i) * SIDE, mine, _mm512_load_ps(some + i * SIDE));
        }
    }
}

/* mixed (count, size) += shares (16, columns), `length` of them, · values (length, size); of the count
 * 16 lines at most. `next` is what will be read later, as much as the values: it is asked for. */
static inline __attribute__((always_inline)) void column_mix(const real *shares, const real *values,
                                                             int64_t length, int64_t size,
                                                             int64_t columns, int64_t count,
                                                             const real *next, float *mixed) {
    real pairs[2 * PAIRS * PAIRS] __attribute__((aligned(64)));
    float part[2][SIDE * SIDE] __attribute__((aligned(64)));
    for (int64_t c = 0; c < size; c += 2 * PAIRS) {
        int64_t wide = size - c < 2 * PAIRS ? size - c : 2 * PAIRS;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t j = 0; j < length; j += PAIRS) {
            for (int64_t i = 0; i < SIDE; i++) {
                const real *at = values + (j + 2 * i) * size + c;
                for (int64_t d = 0; d < wide; d += PAIRS) {
                    __m512i none = _mm512_setzero_si512();
                    __m512i one = j + 2 * i < length ? _mm512_loadu_si512(at + d) : none;
                    __m512i two = j + 2 * i + 1 < length ? _mm512_loadu_si512(at + size + d) : none;
                    ask_for(next + (at - values) + d);
                    ask_for(next + (at - values) + size + d);
                    side_by_side(one, two, &one, &two);
                    _mm512_store_si512(pairs + (2 * d / PAIRS * SIDE + i) * PAIRS, one);
                    _mm512_store_si512(pairs + ((2 * d / PAIRS + 1) * SIDE + i) * PAIRS, two);
                }
            }
            _tile_loadd(4, shares + j, sizeof(real) * (size_t)columns);
            _tile_loadd(5, pairs, 64);
            _tile_loadd(6, pairs + SIDE * PAIRS, 64);
            _tile_dpbf16ps(0, 4, 5);
            _tile_dpbf16ps(1, 4, 6);
            if (wide > PAIRS) {
                _tile_loadd(5, pairs + 2 * SIDE * PAIRS, 64);
                _tile_loadd(6, pairs + 3 * SIDE * PAIRS, 64);
                _tile_dpbf16ps(2, 4, 5);
                _tile_dpbf16ps(3, 4, 6);
            }
        }
        _tile_stored(0, part[0], 64);
        _tile_stored(1, part[1], 64);
        for (int64_t i = 0; i < SIDE && i < count; i++)
            add_in_order(mixed + i * size + c, _mm512_load_ps(part[0] + i * SIDE),
                         _mm512_load_ps(part[1] + i * SIDE));
        if (wide > PAIRS) {
            _tile_stored(2, part[0], 64);
            _tile_stored(3, part[1], 64);
            for (int64_t i = 0; i < SIDE && i < count; i++)
                add_in_order(mixed + i * size + c + PAIRS, _mm512_load_ps(part[0] + i * SIDE),
                             _mm512_load_ps(part[1] + i * SIDE));
        }
    }
}

/* One key head of the fed rows first..last-1, which have the same prompt: its keys and values are
 * read once for all of them. What all prompts begin with is read where the first one has it. */
static inline __attribute__((always_inline)) void attend_by_tiles(const step *s, int64_t k,
                                                                  int64_t first, int64_t last,
                                                                  int64_t size, const scratch *room) {
    int64_t repeat = s->heads / s->kv_heads, begin = s->starts[first], columns = room->columns;
    int64_t count = (s->starts[last] - begin) * repeat, group = s->rows[first].prompt;
    int64_t length = s->lengths[group], shared = s->shared, end = length;
    int64_t prompt = (group * s->kv_heads + k) * s->longest * size;
    int64_t head = k * s->longest * size, all = s->kv_heads * s->room * size;
    const real *first_v = s->prompt_v + head, *values = s->prompt_v + prompt + shared * size;
    int32_t seen[SIDE] __attribute__((aligned(64)));
    for (int64_t i = first; i < last; i++) {
        const row *r = s->rows + i;
        take_row(s, k, i, size, room->queries + (s->starts[i] - begin) * repeat * size, room->mixed);
        int64_t known = length + r->filled + r->tokens;
        end = known > end ? known : end;
    }
    store_all(room->asked, room->queries, count * size);
    paired_keys(room->asked, count, size, room->packed);
    for (int64_t q = 0; q < count; q += SIDE) {
        float *scores = room->scores + q * columns;
        const real *packed = room->packed + q * size;
        column_scores(packed, s->prompt_k + head, shared, size, first_v, scores);
        column_scores(packed, s->prompt_k + prompt + shared * size, length - shared, size, values,
                      scores + shared * SIDE);
    }
    for (int64_t i = first; i < last; i++) {
        const row *r = s->rows + i;
        int64_t own = r->place * all + k * s->room * size, at = (s->starts[i] - begin) * repeat;
        own_scores(s->own_k + own, r->filled + r->tokens, at, r->tokens * repeat, length, size,
                   s->own_v + own, room);
    }
    for (int64_t q = 0, i = first; q < count; q += SIDE) {
        for (int64_t lane = 0; lane < SIDE; lane++) {
            int64_t token = begin + (q + lane) / repeat;
            while (i + 1 < last && token >= s->starts[i + 1]) i++;
            seen[lane] = (int32_t)(length + s->rows[i].filled + token - s->starts[i] + 1);
        }
        column_shares(room->scores + q * columns, length, end, _mm512_load_si512(seen), columns,
                      room->shares + q * columns);
    }
    /* what the next rows will read is asked for while values are mixed */
    const row *after = s->rows + (last < s->fed ? last : first);
    const real *next = s->prompt_k + (after->prompt * s->kv_heads + k) * s->longest * size;
    memset(room->mixed, 0, sizeof(float) * (size_t)(count * size));
    for (int64_t q = 0; q < count; q += SIDE) {
        const real *shares = room->shares + q * columns;
        column_mix(shares, first_v, shared, size, columns, count - q, first_v, room->mixed + q * size);
        column_mix(shares + shared, values, length - shared, size, columns, count - q,
                   next + shared * size, room->mixed + q * size);
    }
    for (int64_t i = first; i < last; i++) {
        const row *r = s->rows + i;
        int64_t at = (s->starts[i] - begin) * repeat, known = r->filled + r->tokens;
        const real *own_v = s->own_v + r->place * all + k * s->room * size;
        next = s->own_k + s->rows[i + 1 < s->fed ? i + 1 : i].place * all + k * s->room * size;
        for (int64_t q = 0; q < r->tokens * repeat; q += SIDE)
            column_mix(room->shares + (at + q) * columns + length, own_v, known, size, columns,
                       r->tokens * repeat - q, next, room->mixed + (at + q) * size);
    }
    for (int64_t q = 0; q < count; q++)
        store_all(s->out + ((begin + q / repeat) * s->heads + k * repeat + q % repeat) * size,
                  room->mixed + q * size, size);
}
#endif
#endif
