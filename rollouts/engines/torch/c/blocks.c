/* Attention of blocks of sequences and its gradients, by AMX: no score outlives its turn, so memory
 * grows with the length and not with its square. Letters are those of train/model/forward.py.
 */

#include "cells.h"
#include "heads.h"

typedef struct {
    const real *q, *keys, *values, *mask;
    const int64_t *ends;
    int64_t kv_heads, repeat, length, reach;
    float scale;
} seen_blocks;

#if TILES
#define SPAN 32 /* positions of a block that are looked at together */

/* What a thread computes in. `many` queries at a time, of all heads that share keys: them and what is
 * known of their gradients, plain and turned; scores of 16 and their gradients; shares of all, and
 * gradients. Of the keys and values what they are multiplied by; gradients of both, in tiles. */
typedef struct {
    int64_t many, columns;
    float *scores, *other, *mixed, *means, *d_keys, *d_values;
    real *q, *d_out, *turned_q, *turned_out, *shares, *grads, *pairs;
    real *keys, *values, *mixed_keys, *mixed_values;
    void *all;
} table;

static int take_table(const seen_blocks *s, int64_t size, int back, table *room) {
    int64_t many = s->repeat * SPAN, columns = whole(s->reach, PAIRS) + PAIRS;
    int64_t known = columns * size, floats = SIDE * (2 * columns + size) + many;
    int64_t cells = many * (4 * size + 2 * columns + 2 * SIDE) + 4 * known;
    if (back) floats += 2 * known;
    if (!(room->all = malloc(sizeof(float) * (size_t)floats + sizeof(real) * (size_t)cells + 512)))
        return 1;
    room->many = many;
    room->columns = columns;
    room->scores = aligned(room->all);
    room->other = room->scores + SIDE * columns;
    room->mixed = room->other + SIDE * columns;
    room->d_keys = room->mixed + SIDE * size;
    room->d_values = room->d_keys + (back ? known : 0);
    room->means = room->d_values + (back ? known : 0);
    room->q = aligned(room->means + many);
    room->d_out = room->q + many * size;
    room->turned_q = room->d_out + many * size;
    room->turned_out = room->turned_q + many * size;
    room->shares = room->turned_out + many * size;
    room->grads = room->shares + many * columns;
    room->pairs = room->grads + many * columns;
    room->keys = room->pairs + many * 2 * SIDE;
    room->values = room->keys + known;
    room->mixed_keys = room->values + known;
    room->mixed_values = room->mixed_keys + known;
    return 0;
}

/* Lines l..l+SPAN-1 of each head of a block (repeat, length, size), one after another; zeros where
 * there are none. */
static inline void gather(const real *from, const seen_blocks *s, int64_t l, int64_t size, real *to) {
    int64_t here = s->length - l < SPAN ? s->length - l : SPAN;
    for (int64_t g = 0; g < s->repeat; g++, to += SPAN * size) {
        memcpy(to, from + (g * s->length + l) * size, sizeof(real) * (size_t)(here * size));
        memset(to + here * size, 0, sizeof(real) * (size_t)((SPAN - here) * size));
    }
}

/* How many keys positions l..l+count-1 see at most. */
static inline int64_t last_end(const int64_t *ends, int64_t count) {
    int64_t most = 0;
    for (int64_t i = 0; i < count; i++) most = ends[i] > most ? ends[i] : most;
    return most;
}

/* scores (end,) become those that count, scaled and masked; the greatest. */
static inline float masked(float *scores, const real *mask, int64_t end, float scale) {
    const float none = -__builtin_inff();
    vec most = (vec){0} + none;
    for (int64_t j = 0; j < end; j += LANES) {
        vec x = lanes(scores + j) * scale + load_some(mask + j, end - j, none);
        keep(scores + j, x);
        most = larger(most, x);
    }
    return highest(most);
}

/* e^(x - peak); what is masked is 0 exactly */
static inline vec power(vec x, float peak) {
    x -= peak;
    return chosen(x < -86.0f, (vec){0}, exponential(x));
}

static inline void zeros(real *at, int64_t from, int64_t to) {
    for (int64_t j = whole(from, LANES); j < to; j += LANES) store(at + j, (vec){0});
}

/* Positions l.. of block `b`: all heads that share its keys. */
static inline __attribute__((always_inline)) void attend_span(const seen_blocks *s, int64_t b,
                                                              int64_t l, int64_t size,
                                                              const table *room, real *out,
                                                              float *stats) {
    int64_t line = b / s->kv_heads * s->length + l, first = b * s->repeat * s->length + l;
    int64_t here = s->length - l < SPAN ? s->length - l : SPAN, columns = room->columns;
    const int64_t *ends = s->ends + line;
    gather(s->q + b * s->repeat * s->length * size, s, l, size, room->q);
    for (int64_t q = 0; q < room->many; q += SIDE) {
        int64_t i = q % SPAN, count = here - i < SIDE ? here - i : SIDE;
        if (count <= 0) continue;
        int64_t at = first + q / SPAN * s->length + i, end = last_end(ends + i, count);
        if (end)
            tile_scores(room->q + q * size, room->keys, SIDE, end, size, columns, room->scores);
        for (int64_t n = 0; n < count; n++) {
            float *scores = room->scores + n * columns, *kept = stats + 2 * (at + n);
            real *shares = room->shares + n * columns;
            int64_t mine = ends[i + n];
            kept[0] = kept[1] = 0.0f;
            if (mine) {
                float peak = masked(scores, s->mask + (line + i + n) * s->reach, mine, s->scale);
                vec sum = {0};
                for (int64_t j = 0; j < mine; j += LANES) {
                    vec x = power(lanes(scores + j), peak);
                    keep(scores + j, x);
                    sum += x;
                }
                kept[0] = peak;
                kept[1] = 1.0f / total(sum);
                for (int64_t j = 0; j < mine; j += LANES)
                    store(shares + j, lanes(scores + j) * kept[1]);
            }
            zeros(shares, mine, whole(end, PAIRS));
        }
        memset(room->mixed, 0, sizeof(float) * (size_t)(SIDE * size));
        tile_mix(room->shares, room->mixed_values, count, end, size, columns, room->mixed);
        store_all(out + at * size, room->mixed, count * size);
    }
}

/* The same positions' shares, and the gradients of their scores; `d_q` from those. */
static inline __attribute__((always_inline)) void back_to_queries(
    const seen_blocks *s, int64_t b, int64_t l, int64_t size, const table *room, const float *stats,
    int64_t most, real *d_q) {
    int64_t line = b / s->kv_heads * s->length + l, first = b * s->repeat * s->length + l;
    int64_t here = s->length - l < SPAN ? s->length - l : SPAN, columns = room->columns;
    for (int64_t q = 0; q < room->many; q += SIDE) {
        int64_t i = q % SPAN, count = here - i < SIDE ? here - i : SIDE;
        int64_t at = first + q / SPAN * s->length + i;
        if (count > 0 && most) {
            tile_scores(room->q + q * size, room->keys, SIDE, most, size, columns, room->scores);
            tile_scores(room->d_out + q * size, room->values, SIDE, most, size, columns, room->other);
        }
        for (int64_t n = 0; n < SIDE; n++) {
            real *shares = room->shares + (q + n) * columns, *grads = room->grads + (q + n) * columns;
            int64_t mine = n < count ? s->ends[line + i + n] : 0;
            if (mine) {
                const float *kept = stats + 2 * (at + n);
                const real *mask = s->mask + (line + i + n) * s->reach;
                for (int64_t j = 0; j < mine; j += LANES) {
                    vec x = lanes(room->scores + n * columns + j) * s->scale;
                    x += load_some(mask + j, mine - j, -__builtin_inff());
                    vec share = power(x, kept[0]) * kept[1];
                    vec d = lanes(room->other + n * columns + j) - room->means[q + n];
                    store(shares + j, share);
                    store(grads + j, share * d * s->scale);
                }
            }
            zeros(shares, mine, whole(most, PAIRS));
            zeros(grads, mine, whole(most, PAIRS));
        }
        if (count <= 0) continue;
        memset(room->mixed, 0, sizeof(float) * (size_t)(SIDE * size));
        tile_mix(room->grads + q * columns, room->mixed_keys, count, most, size, columns, room->mixed);
        store_all(d_q + at * size, room->mixed, count * size);
    }
}

/* to += left (size, many) · right (many, columns), of which `end` count. In tiles: of every 32 columns,
 * of every 16 lines, two, whose columns are as `side_by_side` puts them. */
static inline __attribute__((always_inline)) void add_products(const real *left, const real *right,
                                                               int64_t many, int64_t end, int64_t size,
                                                               int64_t columns, real *pairs,
                                                               float *to) {
    for (int64_t j = 0; j < end; j += PAIRS) {
        for (int64_t q = 0; q < many; q += 2) {
            const real *at = right + q * columns + j;
            __m512i one, two;
            side_by_side(_mm512_loadu_si512(at), _mm512_loadu_si512(at + columns), &one, &two);
            real *pair = pairs + (q / PAIRS * 2 * SIDE + q % PAIRS / 2) * PAIRS;
            _mm512_store_si512(pair, one);
            _mm512_store_si512(pair + SIDE * PAIRS, two);
        }
        for (int64_t c = 0; c < size; c += SIDE, to += 2 * SIDE * SIDE) {
            _tile_loadd(0, to, 64);
            _tile_loadd(1, to + SIDE * SIDE, 64);
            for (int64_t q = 0; q < many; q += PAIRS) {
                _tile_loadd(2, left + c * many + q, sizeof(real) * (size_t)many);
                _tile_loadd(3, pairs + q * PAIRS, 64);
                _tile_loadd(4, pairs + (q + SIDE) * PAIRS, 64);
                _tile_dpbf16ps(0, 2, 3);
                _tile_dpbf16ps(1, 2, 4);
            }
            _tile_stored(0, to, 64);
            _tile_stored(1, to + SIDE * SIDE, 64);
        }
    }
}

/* to (count, size): what `add_products` has added up, by columns. */
static inline void from_tiles(float *sums, int64_t count, int64_t size, real *to) {
    for (int64_t j = 0; j < count; j += PAIRS)
        for (int64_t c = 0; c < size; c += SIDE)
            for (int64_t half = 0; half < 2; half++, sums += SIDE * SIDE) {
                __m512i line[SIDE];
                memcpy(line, sums, sizeof line);
                turn(line);
                for (int64_t i = 0; i < SIDE; i++) {
                    int64_t column = j + i / 4 * 8 + half * 4 + i % 4;
                    if (column < count) store(to + column * size + c, (vec)line[i]);
                }
            }
}

static inline void turn_lines(const real *from, int64_t many, int64_t size, real *to) {
    for (int64_t q = 0; q < many; q += LANES)
        for (int64_t c = 0; c < size; c += LANES)
            turn_square(from + q * size + c, size, to + c * many + q, many);
}

static inline __attribute__((always_inline)) void attend_block(const seen_blocks *s, int64_t b,
                                                               int64_t size, const table *room,
                                                               real *out, float *stats) {
    const real *keys = s->keys + b * s->reach * size, *values = s->values + b * s->reach * size;
    paired_keys(keys, s->reach, size, room->keys);
    paired_values(values, s->reach, size, room->mixed_values);
    for (int64_t l = 0; l < s->length; l += SPAN) attend_span(s, b, l, size, room, out, stats);
}

typedef struct {
    const real *out, *d_out;
    const float *stats;
    real *d_q, *d_keys, *d_values;
} back_blocks;

static inline __attribute__((always_inline)) void attend_block_back(const seen_blocks *s, int64_t b,
                                                                    int64_t size, const table *room,
                                                                    const back_blocks *g) {
    int64_t known = b * s->reach * size, asked = b * s->repeat * s->length * size;
    int64_t sums = whole(s->reach, PAIRS) * size;
    paired_keys(s->keys + known, s->reach, size, room->keys);
    paired_keys(s->values + known, s->reach, size, room->values);
    paired_values(s->keys + known, s->reach, size, room->mixed_keys);
    memset(room->d_keys, 0, sizeof(float) * (size_t)sums);
    memset(room->d_values, 0, sizeof(float) * (size_t)sums);
    for (int64_t l = 0; l < s->length; l += SPAN) {
        int64_t here = s->length - l < SPAN ? s->length - l : SPAN;
        int64_t most = last_end(s->ends + b / s->kv_heads * s->length + l, here);
        gather(s->q + asked, s, l, size, room->q);
        gather(g->out + asked, s, l, size, room->turned_q); /* for the means alone */
        gather(g->d_out + asked, s, l, size, room->d_out);
        for (int64_t q = 0; q < room->many; q++) {
            vec sum = {0};
            for (int64_t c = q * size; c < (q + 1) * size; c += LANES)
                sum += load(room->turned_q + c) * load(room->d_out + c);
            room->means[q] = total(sum);
        }
        back_to_queries(s, b, l, size, room, g->stats, most, g->d_q);
        turn_lines(room->q, room->many, size, room->turned_q);
        turn_lines(room->d_out, room->many, size, room->turned_out);
        add_products(room->turned_out, room->shares, room->many, most, size, room->columns, room->pairs,
                     room->d_values);
        add_products(room->turned_q, room->grads, room->many, most, size, room->columns, room->pairs,
                     room->d_keys);
    }
    from_tiles(room->d_keys, s->reach, size, g->d_keys + known);
    from_tiles(room->d_values, s->reach, size, g->d_values + known);
}

/* All blocks: results, or with `back` gradients. */
static int over_blocks(const seen_blocks *s, int64_t rows, int64_t size, real *out, float *stats,
                       const back_blocks *back, int threads) {
    int failed = 0;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        table room = {0};
        int none = take_table(s, size, back != NULL, &room);
        if (none) {
#pragma omp atomic write
            failed = 1;
        }
        tile_sizes before;
        begin_tiles(&before);
#pragma omp for schedule(dynamic)
        for (int64_t b = 0; b < rows * s->kv_heads; b++) {
            if (none) continue;
            if (back && size == 64) /* a known size is unrolled */
                attend_block_back(s, b, 64, &room, back);
            else if (back)
                attend_block_back(s, b, size, &room, back);
            else if (size == 64)
                attend_block(s, b, 64, &room, out, stats);
            else
                attend_block(s, b, size, &room, out, stats);
        }
        end_tiles(&before);
        free(room.all);
    }
    return failed;
}
#endif

/* out (R*K, G*L, size) = softmax(q · keysᵀ * scale + mask) · values; q as out, keys and values
 * (R*K, J, size), mask (R, L, J) 0 or -inf, `ends` (R, L) the columns up to each line's last 0: 0 for a
 * line that sees nothing, whose results are 0. stats (R*K, G*L, 2): what the gradients need of each
 * line. size is a multiple of 32. Returns 0, or 1 where there is no memory. Only where `multiplies`
 * says so. */
int attend_blocks(const real *q, const real *keys, const real *values, const real *mask,
                  const int64_t *ends, real *out, float *stats, int64_t rows, int64_t kv_heads,
                  int64_t repeat, int64_t length, int64_t reach, int64_t size, float scale,
                  int threads) {
#if TILES
    seen_blocks s = {q, keys, values, mask, ends, kv_heads, repeat, length, reach, scale};
    return over_blocks(&s, rows, size, out, stats, NULL, threads);
#endif
    return 0;
}

/* Gradients of `attend_blocks`: d_q, d_keys and d_values from d_out, all as what they are of. */
int attend_blocks_back(const real *q, const real *keys, const real *values, const real *mask,
                       const int64_t *ends, const real *out, const float *stats, const real *d_out,
                       real *d_q, real *d_keys, real *d_values, int64_t rows, int64_t kv_heads,
                       int64_t repeat, int64_t length, int64_t reach, int64_t size, float scale,
                       int threads) {
#if TILES
    seen_blocks s = {q, keys, values, mask, ends, kv_heads, repeat, length, reach, scale};
    back_blocks g = {out, d_out, stats, d_q, d_keys, d_values};
    return over_blocks(&s, rows, size, NULL, NULL, &g, threads);
#endif
    return 0;
}
