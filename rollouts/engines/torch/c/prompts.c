/* Attention of the tokens of prompts, over what stands before each and over itself, by AMX. */

#include "heads.h"

typedef struct {
    const real *qkv, *cos, *sin, *norm_q, *norm_k;
    real *out, *keys, *values;
    const int64_t *spans, *starts;
    int64_t heads, kv_heads, longest;
    float eps, scale;
} reading;

#if TILES
/* What a thread computes in: the queries of ROWS tokens (most, size), in float32 and rounded; their
 * scores and shares (most, columns); results; and the keys and values of a prompt, paired. */
typedef struct {
    float *queries, *mixed, *scores;
    real *asked, *shares, *keys, *values;
    int64_t columns;
    void *all;
} desk;

static int take_desk(const reading *s, int64_t size, desk *room) {
    int64_t most = ROWS * (s->heads / s->kv_heads) + SIDE, columns = whole(s->longest, PAIRS) + PAIRS;
    int64_t floats = most * (2 * size + columns);
    int64_t cells = most * (size + columns) + 2 * columns * size;
    if (!(room->all = malloc(sizeof(float) * (size_t)floats + sizeof(real) * (size_t)cells + 256)))
        return 1;
    room->columns = columns;
    room->queries = aligned(room->all);
    room->mixed = room->queries + most * size;
    room->scores = room->mixed + most * size;
    room->asked = aligned(room->queries + floats);
    room->shares = room->asked + most * size;
    room->keys = aligned(room->shares + most * columns);
    room->values = room->keys + columns * size;
    return 0;
}

/* The tokens from..upto-1 of a prompt, the first of which is line `at` of qkv: one key head. */
static inline __attribute__((always_inline)) void attend_tokens(const reading *s, int64_t k,
                                                                int64_t at, int64_t from, int64_t upto,
                                                                int64_t size, const desk *room) {
    int64_t repeat = s->heads / s->kv_heads, count = (upto - from) * repeat, columns = room->columns;
    int64_t line = (s->heads + 2 * s->kv_heads) * size, end = whole(upto, PAIRS);
    for (int64_t q = 0; q < count; q++) {
        int64_t i = at + q / repeat, head = k * repeat + q % repeat;
        turned(s->qkv + i * line + head * size, s->norm_q, s->cos + i * size, s->sin + i * size, size,
               s->eps, s->scale, room->queries + q * size);
    }
    store_all(room->asked, room->queries, count * size);
    tile_scores(room->asked, room->keys, count, upto, size, columns, room->scores);
    for (int64_t q = 0; q < count; q++) {
        int64_t seen = from + q / repeat + 1;
        real *shares = room->shares + q * columns;
        shares_of(room->scores + q * columns, seen, shares);
        for (int64_t j = whole(seen, LANES); j < end; j += LANES) store(shares + j, (vec){0});
    }
    memset(room->mixed, 0, sizeof(float) * (size_t)(count * size));
    tile_mix(room->shares, room->values, count, upto, size, columns, room->mixed);
    for (int64_t q = 0; q < count; q++) {
        int64_t head = k * repeat + q % repeat;
        store_all(s->out + ((at + q / repeat) * s->heads + head) * size, room->mixed + q * size, size);
    }
}

static inline __attribute__((always_inline)) void read_head(const reading *s, int64_t k, int64_t p,
                                                            int64_t size, const desk *room) {
    int64_t begin = s->spans[2 * p], end = s->spans[2 * p + 1], line = s->heads + 2 * s->kv_heads;
    real *keys = s->keys + (p * s->kv_heads + k) * s->longest * size;
    real *values = s->values + (p * s->kv_heads + k) * s->longest * size;
    for (int64_t i = begin; i < end; i++) {
        int64_t at = s->starts[p] + i - begin;
        const real *heads = s->qkv + at * line * size;
        turned(heads + (s->heads + k) * size, s->norm_k, s->cos + at * size, s->sin + at * size, size,
               s->eps, 1.0f, room->mixed);
        store_all(keys + i * size, room->mixed, size);
        memcpy(values + i * size, heads + (s->heads + s->kv_heads + k) * size,
               sizeof(real) * (size_t)size);
    }
    paired_keys(keys, end, size, room->keys);
    paired_values(values, end, size, room->values);
    for (int64_t i = begin; i < end; i += ROWS)
        attend_tokens(s, k, s->starts[p] + i - begin, i, i + ROWS < end ? i + ROWS : end, size, room);
}
#endif

/* Attention of tokens `begin` to before `end` of each prompt, its pair in spans (prompts, 2), over the
 * keys and values of the tokens up to each, whose own are written here.
 *
 * qkv (tokens, heads + 2*kv_heads, size), as projected, the prompts' tokens one after another; cos, sin
 * (tokens, size); out (tokens, heads, size); keys, values (prompts, kv_heads, longest, size), from
 * `begin` on not read before they are written; size a multiple of 32. Returns 0, or 1 where there is no
 * memory. Only where `multiplies` says so.
 */
int read_prompts(const real *qkv, real *out, const real *cos, const real *sin, const real *norm_q,
                 const real *norm_k, real *keys, real *values, const int64_t *spans, int64_t prompts,
                 int64_t heads, int64_t kv_heads, int64_t size, int64_t longest, float eps, float scale,
                 int threads) {
    int failed = 0;
#if TILES
    int64_t *starts = malloc(sizeof(int64_t) * (size_t)(prompts + 1));
    if (!starts) return 1;
    starts[0] = 0;
    for (int64_t p = 0; p < prompts; p++)
        starts[p + 1] = starts[p] + spans[2 * p + 1] - spans[2 * p];
    reading s = {qkv, cos, sin, norm_q, norm_k, out, keys, values, spans, starts,
                 heads, kv_heads, longest, eps, scale};
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        desk room = {0};
        int none = take_desk(&s, size, &room);
        if (none) {
#pragma omp atomic write
            failed = 1;
        }
        tile_sizes before;
        begin_tiles(&before);
#pragma omp for collapse(2) schedule(dynamic)
        for (int64_t p = 0; p < prompts; p++)
            for (int64_t k = 0; k < kv_heads; k++) {
                if (none) continue;
                if (size == 64) /* a known size is unrolled */
                    read_head(&s, k, p, 64, &room);
                else
                    read_head(&s, k, p, size, &room);
            }
        end_tiles(&before);
        free(room.all);
    }
    free(starts);
#endif
    return failed;
}
