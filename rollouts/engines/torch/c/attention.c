/* Attention of one new token a row, over keys and values that are kept. */

#include "tiles.h"
#include "vectors.h"

#define BLOCK 16 /* keys that are looked at together */
#define ROWS 16  /* rows of one prompt that are, at most */
#define MOST 256 /* the largest head */
#define AHEAD 512 /* cells that are asked for before they are needed */
#define FEW 8     /* queries of one prompt that tiles are not worth their preparation for */

/* One head (size,): normed where `weight` is given, turned by its place, and scaled. */
static inline void turned(const real *head, const real *weight, const real *cos, const real *sin,
                          int64_t size, float eps, float scale, float *to) {
    float norm = 1.0f;
    if (weight) {
        vec squares = {0};
        for (int64_t i = 0; i < size; i += LANES) {
            vec v = load(head + i);
            squares += v * v;
        }
        norm = inverse_root(total(squares) / (float)size + eps);
    }
    int64_t half = size / 2;
    for (int64_t i = 0; i < half; i += LANES) {
        vec a = load(head + i) * norm, b = load(head + half + i) * norm;
        if (weight) {
            a *= load(weight + i);
            b *= load(weight + half + i);
        }
        vec first = (a * load(cos + i) - b * load(sin + i)) * scale;
        vec second = (b * load(cos + half + i) + a * load(sin + half + i)) * scale;
        keep(to + i, first);
        keep(to + half + i, second);
    }
}

typedef struct {
    float at[BLOCK * MOST] __attribute__((aligned(64)));
} block; /* keys or values as float32, one after the other */

static inline void widen(const real *from, int64_t count, int64_t size, block *to) {
    int64_t cells = count * size;
    for (int64_t i = 0; i < cells; i += LANES) {
        __builtin_prefetch(from + i + AHEAD);
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

/* Shares of `count` scores, in place, padded by zeros to whole vectors. */
static inline void softmax(float *at, int64_t count) {
    int64_t end = (count + LANES - 1) / LANES * LANES;
    for (int64_t j = count; j < end; j++) at[j] = at[0];
    vec peaks = lanes(at);
    for (int64_t j = LANES; j < end; j += LANES) peaks = larger(peaks, lanes(at + j));
    float peak = highest(peaks);
    for (int64_t j = count; j < end; j++) at[j] = peak - 1e4f;
    vec sum = {0};
    for (int64_t j = 0; j < end; j += LANES) {
        vec x = exponential(lanes(at + j) - peak);
        keep(at + j, x);
        sum += x;
    }
    float inverse = 1.0f / total(sum);
    for (int64_t j = 0; j < end; j += LANES) keep(at + j, lanes(at + j) * inverse);
}

typedef struct {
    const real *qkv, *cos, *sin, *norm_q, *norm_k, *prompt_k, *prompt_v;
    real *out, *own_k, *own_v;
    const int64_t *fed, *lengths;
    int64_t width, heads, kv_heads, longest, room, used;
    float eps, scale;
} step;

static inline void store_all(real *to, const float *from, int64_t size) {
    for (int64_t i = 0; i < size; i += LANES) store(to + i, lanes(from + i));
}

/* What a thread computes in: queries and results (most, size) and their scores, of at most `most`
 * queries; and where there are tiles, the keys or values of a prompt, queries and shares for them. */
typedef struct {
    float *queries, *mixed, *shares;
    real *paired, *lines; /* null: no tiles */
    void *all;
} scratch;

static int take_scratch(const step *s, int64_t size, scratch *room) {
    int64_t most = ROWS * (s->heads / s->kv_heads), columns = s->longest + s->used + 2 * BLOCK;
    int64_t floats = (most + BLOCK) * (2 * size + columns), cells = 0, lines = 0;
#if TILES
    if (size % PAIRS == 0 && tiles_allowed()) {
        cells = whole(s->longest, PAIRS) * size;
        lines = whole(most, SIDE) * size + SIDE * whole(s->longest, PAIRS);
    }
#endif
    size_t bytes = sizeof(float) * (size_t)floats + sizeof(real) * (size_t)(cells + lines) + 256;
    if (!(room->all = malloc(bytes))) return 1;
    room->queries = (float *)(((uintptr_t)room->all + 63) / 64 * 64);
    room->mixed = room->queries + (most + BLOCK) * size;
    room->shares = room->mixed + (most + BLOCK) * size;
    room->paired = room->lines = NULL;
    if (cells) {
        room->paired = (real *)(((uintptr_t)(room->queries + floats) + 63) / 64 * 64);
        room->lines = room->paired + cells;
    }
    return 0;
}

/* One key head of the fed rows first..last-1, which have the same prompt: its keys and values are
 * read once for all of them. */
static inline __attribute__((always_inline)) void attend_rows(const step *s, int64_t k,
                                                              int64_t first, int64_t last,
                                                              int64_t size, const scratch *room) {
    int64_t repeat = s->heads / s->kv_heads, count = (last - first) * repeat;
    int64_t start = s->fed ? s->fed[first] : first, group = start / s->width;
    int64_t length = s->lengths[group], columns = s->longest + s->used + 2 * BLOCK;
    int64_t line = (s->heads + 2 * s->kv_heads) * size;
    float *queries = room->queries, *mixed = room->mixed, *shares = room->shares;
    int tiled = room->paired && count > FEW;
    block known;
    for (int64_t i = first; i < last; i++) {
        int64_t row = s->fed ? s->fed[i] : i;
        int64_t newest = ((row * s->kv_heads + k) * s->room + s->used - 1) * size;
        const real *heads = s->qkv + i * line, *c = s->cos + i * size, *t = s->sin + i * size;
        turned(heads + (s->heads + k) * size, s->norm_k, c, t, size, s->eps, 1.0f, mixed);
        store_all(s->own_k + newest, mixed, size);
        memcpy(s->own_v + newest, heads + (s->heads + s->kv_heads + k) * size,
               sizeof(real) * (size_t)size);
        for (int64_t g = 0; g < repeat; g++)
            turned(heads + (k * repeat + g) * size, s->norm_q, c, t, size, s->eps, s->scale,
                   queries + ((i - first) * repeat + g) * size);
    }
    memset(mixed, 0, sizeof(float) * (size_t)(count * size));
    int64_t prompt = (group * s->kv_heads + k) * s->longest * size;
#if TILES
    if (tiled) {
        narrowed(queries, count, size, room->lines);
        paired_keys(s->prompt_k + prompt, length, size, room->paired);
        tile_scores(room->lines, room->paired, count, length, size, columns, shares);
    }
#endif
    for (int64_t j = 0; j < length && !tiled; j += BLOCK) {
        int64_t some = length - j < BLOCK ? length - j : BLOCK;
        widen(s->prompt_k + prompt + j * size, some, size, &known);
        for (int64_t q = 0; q < count; q++)
            scores(queries + q * size, &known, some, size, shares + q * columns + j);
    }
    for (int64_t i = first; i < last; i++) {
        int64_t row = s->fed ? s->fed[i] : i, q = (i - first) * repeat;
        int64_t own = (row * s->kv_heads + k) * s->room * size;
        for (int64_t j = 0; j < s->used; j += BLOCK) {
            int64_t some = s->used - j < BLOCK ? s->used - j : BLOCK;
            widen(s->own_k + own + j * size, some, size, &known);
            for (int64_t g = q; g < q + repeat; g++)
                scores(queries + g * size, &known, some, size, shares + g * columns + length + j);
        }
        for (int64_t g = q; g < q + repeat; g++) softmax(shares + g * columns, length + s->used);
        for (int64_t j = 0; j < s->used; j += BLOCK) {
            int64_t some = s->used - j < BLOCK ? s->used - j : BLOCK;
            widen(s->own_v + own + j * size, some, size, &known);
            for (int64_t g = q; g < q + repeat; g++)
                mix(shares + g * columns + length + j, &known, some, size, mixed + g * size);
        }
    }
#if TILES
    if (tiled) {
        paired_values(s->prompt_v + prompt, length, size, room->paired);
        tile_mix(shares, room->paired, count, length, size, columns, room->lines, mixed);
    }
#endif
    for (int64_t j = 0; j < length && !tiled; j += BLOCK) {
        int64_t some = length - j < BLOCK ? length - j : BLOCK;
        widen(s->prompt_v + prompt + j * size, some, size, &known);
        for (int64_t q = 0; q < count; q++)
            mix(shares + q * columns + j, &known, some, size, mixed + q * size);
    }
    for (int64_t q = 0; q < count; q++) {
        int64_t head = k * repeat + q % repeat;
        store_all(s->out + ((first + q / repeat) * s->heads + head) * size, mixed + q * size, size);
    }
}

/* Attention of one new token a fed row, over its prompt's keys and its own, which the token joins.
 *
 * qkv (fed, heads + 2*kv_heads, size), as projected; cos, sin (fed, size); out (fed, heads, size).
 * prompt_* (groups, kv_heads, longest, size); own_* (rows, kv_heads, room, size), of which column
 * used - 1 is written here. fed: rows of `own` in order, or null for all. lengths: of the groups'
 * prompts. Returns 0, or 1 where there is no memory.
 */
int attend(const real *qkv, real *out, const real *cos, const real *sin, const real *norm_q,
           const real *norm_k, const real *prompt_k, const real *prompt_v, real *own_k, real *own_v,
           const int64_t *fed, const int64_t *lengths, int64_t count, int64_t width, int64_t heads,
           int64_t kv_heads, int64_t size, int64_t longest, int64_t room, int64_t used, float eps,
           float scale, int threads) {
    step s = {qkv, cos, sin, norm_q, norm_k, prompt_k, prompt_v, out, own_k, own_v, fed, lengths,
              width, heads, kv_heads, longest, room, used, eps, scale};
    int64_t *starts = malloc(sizeof(int64_t) * (size_t)(count + 1)), parts = 0;
    if (!starts) return 1;
    for (int64_t i = 0; i < count; i++) {
        int64_t here = (fed ? fed[i] : i) / width;
        int64_t before = i ? (fed ? fed[i - 1] : i - 1) / width : -1;
        if (here != before || i - starts[parts - 1] == ROWS) starts[parts++] = i;
    }
    starts[parts] = count;
    int failed = 0;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        scratch room;
        int none = take_scratch(&s, size, &room);
        if (none) {
#pragma omp atomic write
            failed = 1;
        }
#if TILES
        tile_sizes before;
        int tiled = !none && room.paired;
        if (tiled) begin_tiles(&before);
#endif
#pragma omp for collapse(2) schedule(static)
        for (int64_t k = 0; k < kv_heads; k++)
            for (int64_t part = 0; part < parts; part++) {
                if (none) continue;
                if (size == 64) /* a known size is unrolled */
                    attend_rows(&s, k, starts[part], starts[part + 1], 64, &room);
                else if (size == 128)
                    attend_rows(&s, k, starts[part], starts[part + 1], 128, &room);
                else
                    attend_rows(&s, k, starts[part], starts[part + 1], size, &room);
            }
#if TILES
        if (tiled) end_tiles(&before);
#endif
        if (!none) free(room.all);
    }
    free(starts);
    return failed;
}
