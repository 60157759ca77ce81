/* Attention of one new token a row, over keys and values that are kept. */

#include "heads.h"

#define FEW 8 /* queries of one prompt that tiles are not worth their preparation for */

typedef struct {
    const real *qkv, *cos, *sin, *norm_q, *norm_k, *prompt_k, *prompt_v;
    real *out, *own_k, *own_v;
    const int64_t *fed, *lengths;
    int64_t width, heads, kv_heads, longest, room, used, shared;
    float eps, scale;
} step;

/* What a thread computes in, for at most `most` queries: them and results (most, size), their scores
 * (most, columns), and what keys and values are multiplied by, rounded or the same; where there are
 * tiles, the keys or values of a prompt. */
typedef struct {
    float *queries, *mixed, *scores;
    number *asked, *shares;
    real *paired; /* null: no tiles */
    int64_t columns;
    void *all;
} scratch;

static int take_scratch(const step *s, int64_t size, scratch *room) {
    int64_t most = ROWS * (s->heads / s->kv_heads) + 16, columns = s->longest + s->used + 32;
    int64_t floats = most * (2 * size + columns), cells = 0, paired = 0;
#if PAIRED
    cells = most * (size + columns);
#endif
#if TILES
    if (size % PAIRS == 0 && tiles_allowed()) paired = whole(s->longest, PAIRS) * size;
#endif
    size_t bytes = sizeof(float) * (size_t)floats + sizeof(real) * (size_t)(cells + paired) + 256;
    if (!(room->all = malloc(bytes))) return 1;
    room->columns = columns;
    room->queries = aligned(room->all);
    room->mixed = room->queries + most * size;
    room->scores = room->mixed + most * size;
#if PAIRED
    room->asked = aligned(room->queries + floats);
    room->shares = room->asked + most * size;
    room->paired = paired ? aligned(room->shares + most * columns) : NULL;
#else
    room->asked = room->queries;
    room->shares = room->scores;
    room->paired = NULL;
#endif
    return 0;
}

/* One key head of the fed rows first..last-1, which have the same prompt: its keys and values are
 * read once for all of them. What all prompts begin with is read where the first one has it: there it
 * is near already. */
static inline __attribute__((always_inline)) void attend_rows(const step *s, int64_t k,
                                                              int64_t first, int64_t last,
                                                              int64_t size, const scratch *room) {
    int64_t repeat = s->heads / s->kv_heads, count = (last - first) * repeat;
    int64_t start = s->fed ? s->fed[first] : first, group = start / s->width;
    int64_t length = s->lengths[group], columns = room->columns;
    int64_t line = (s->heads + 2 * s->kv_heads) * size;
    float *queries = room->queries, *mixed = room->mixed, *scores = room->scores;
    number *asked = room->asked, *shares = room->shares;
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
#if PAIRED
    store_all(asked, queries, count * size);
#endif
    memset(mixed, 0, sizeof(float) * (size_t)(count * size));
    int64_t prompt = (group * s->kv_heads + k) * s->longest * size;
    const real *keys = s->prompt_k + prompt, *values = s->prompt_v + prompt;
    const real *first_k = s->prompt_k + k * s->longest * size;
    const real *first_v = s->prompt_v + k * s->longest * size;
    int64_t shared = s->shared, from = shared * size;
    int tiled = room->paired && count > FEW;
#if TILES
    if (tiled) {
        paired_keys(keys, length, size, room->paired);
        tile_scores(asked, room->paired, count, length, size, columns, scores);
    }
#endif
    if (!tiled) {
        known_scores(asked, count, first_k, shared, size, columns, first_v, scores);
        known_scores(asked, count, keys + from, length - shared, size, columns, values + from,
                     scores + shared);
    }
    for (int64_t i = first; i < last; i++) {
        int64_t row = s->fed ? s->fed[i] : i, q = (i - first) * repeat;
        int64_t all = s->kv_heads * s->room * size, own = row * all + k * s->room * size;
        known_scores(asked + q * size, repeat, s->own_k + own, s->used, size, columns,
                     s->own_v + own, scores + q * columns + length);
        for (int64_t g = q; g < q + repeat; g++)
            shares_of(scores + g * columns, length + s->used, shares + g * columns);
        known_mix(shares + q * columns + length, repeat, s->own_v + own, s->used, size, columns,
                  s->own_k + own + all, mixed + q * size);
    }
#if TILES
    if (tiled) {
        paired_values(values, length, size, room->paired);
        tile_mix(shares, room->paired, count, length, size, columns, mixed);
    }
#endif
    const real *next = keys + s->kv_heads * s->longest * size; /* the next prompt's */
    if (!tiled) {
        known_mix(shares, count, first_v, shared, size, columns, first_k, mixed);
        known_mix(shares + shared, count, values + from, length - shared, size, columns, next + from,
                  mixed);
    }
    for (int64_t q = 0; q < count; q++) {
        int64_t head = k * repeat + q % repeat;
        store_all(s->out + ((first + q / repeat) * s->heads + head) * size, mixed + q * size, size);
    }
}

/* Attention of one new token a fed row, over its prompt's keys and its own, which the token joins.
 *
 * qkv (fed, heads + 2*kv_heads, size), as projected; cos, sin (fed, size); out (fed, heads, size).
 * prompt_* (groups, kv_heads, longest, size), the first `shared` of which are the same in all groups;
 * own_* (rows, kv_heads, room, size), of which column used - 1 is written here. fed: rows of `own` in
 * order, or null for all. lengths: of the groups' prompts. Returns 0, or 1 where there is no memory.
 */
int attend(const real *qkv, real *out, const real *cos, const real *sin, const real *norm_q,
           const real *norm_k, const real *prompt_k, const real *prompt_v, real *own_k, real *own_v,
           const int64_t *fed, const int64_t *lengths, int64_t count, int64_t width, int64_t heads,
           int64_t kv_heads, int64_t size, int64_t longest, int64_t room, int64_t used,
           int64_t shared, float eps, float scale, int threads) {
    step s = {qkv, cos, sin, norm_q, norm_k, prompt_k, prompt_v, out, own_k, own_v, fed, lengths,
              width, heads, kv_heads, longest, room, used, shared, eps, scale};
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
        scratch room = {0};
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
