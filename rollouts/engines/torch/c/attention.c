/* Attention of a few new tokens a row, over keys and values that are kept. */

#include "columns.h"

#define FEW 4 /* queries that tiles are not worth their preparation for */

/* The queries of a row meet its own keys, each those up to its token; their scores on the prompt are
 * there already. Of all these come shares, and what those of its own values give. */
static inline __attribute__((always_inline)) void meet_own(const step *s, int64_t k, const row *r,
                                                           int64_t length, int64_t q, int64_t size,
                                                           const scratch *room) {
    int64_t repeat = s->heads / s->kv_heads, count = r->tokens * repeat, columns = room->columns;
    int64_t all = s->kv_heads * s->room * size, own = r->place * all + k * s->room * size;
    int64_t known = r->filled + r->tokens, end = whole(length + known, LANES);
    known_scores(room->asked + q * size, count, s->own_k + own, known, size, columns, s->own_v + own,
                 room->scores + q * columns + length);
    for (int64_t g = 0; g < count; g++) {
        int64_t seen = length + r->filled + g / repeat + 1, from = whole(seen, LANES);
        number *shares = room->shares + (q + g) * columns;
        shares_of(room->scores + (q + g) * columns, seen, shares);
        if (from < end) memset(shares + from, 0, sizeof(number) * (size_t)(end - from));
    }
    known_mix(room->shares + q * columns + length, count, s->own_v + own, known, size, columns,
              s->own_k + own + all, room->mixed + q * size);
}

/* One key head of the fed rows first..last-1, which have the same prompt: its keys and values are
 * read once for all of them. What all prompts begin with is read where the first one has it: there it
 * is near already. */
static inline __attribute__((always_inline)) void attend_rows(const step *s, int64_t k,
                                                              int64_t first, int64_t last,
                                                              int64_t size, const scratch *room) {
    int64_t repeat = s->heads / s->kv_heads, begin = s->starts[first];
#if TILES
    if (room->packed && (s->starts[last] - begin) * repeat > FEW) {
        attend_by_tiles(s, k, first, last, size, room);
        return;
    }
#endif
    int64_t count = (s->starts[last] - begin) * repeat, group = s->rows[first].prompt;
    int64_t length = s->lengths[group], columns = room->columns;
    float *queries = room->queries, *mixed = room->mixed, *scores = room->scores;
    number *asked = room->asked, *shares = room->shares;
    for (int64_t i = first; i < last; i++)
        take_row(s, k, i, size, queries + (s->starts[i] - begin) * repeat * size, mixed);
#if PAIRED
    store_all(asked, queries, count * size);
#endif
    memset(mixed, 0, sizeof(float) * (size_t)(count * size));
    int64_t prompt = (group * s->kv_heads + k) * s->longest * size;
    const real *keys = s->prompt_k + prompt, *values = s->prompt_v + prompt;
    const real *first_k = s->prompt_k + k * s->longest * size;
    const real *first_v = s->prompt_v + k * s->longest * size;
    int64_t shared = s->shared, from = shared * size;
    known_scores(asked, count, first_k, shared, size, columns, first_v, scores);
    known_scores(asked, count, keys + from, length - shared, size, columns, values + from,
                 scores + shared);
    for (int64_t i = first; i < last; i++)
        meet_own(s, k, s->rows + i, length, (s->starts[i] - begin) * repeat, size, room);
    const real *next = keys + s->kv_heads * s->longest * size; /* the next prompt's */
    known_mix(shares, count, first_v, shared, size, columns, first_k, mixed);
    known_mix(shares + shared, count, values + from, length - shared, size, columns, next + from, mixed);
    for (int64_t q = 0; q < count; q++) {
        int64_t head = k * repeat + q % repeat;
        store_all(s->out + ((begin + q / repeat) * s->heads + head) * size, mixed + q * size, size);
    }
}

/* Attention of the new tokens of each fed row, over its prompt's keys and its own, which they join.
 *
 * qkv (tokens, heads + 2*kv_heads, size), as projected, the rows' tokens one after another; cos, sin
 * (tokens, size); out (tokens, heads, size). prompt_* (prompts, kv_heads, longest, size), the first
 * `shared` of which are the same in all; own_* (places, kv_heads, room, size). rows (fed): the rows of
 * a prompt one after another, each with 16 tokens at most. lengths: of the prompts. Returns 0, or 1
 * where there is no memory.
 */
int attend(const real *qkv, real *out, const real *cos, const real *sin, const real *norm_q,
           const real *norm_k, const real *prompt_k, const real *prompt_v, real *own_k, real *own_v,
           const row *rows, const int64_t *lengths, int64_t fed, int64_t heads, int64_t kv_heads,
           int64_t size, int64_t longest, int64_t room, int64_t shared, float eps, float scale,
           int threads) {
    int64_t *starts = malloc(2 * sizeof(int64_t) * (size_t)(fed + 1)), parts = 0, most = 0;
    if (!starts) return 1;
    int64_t *cuts = starts + fed + 1; /* rows that are looked at together: ROWS tokens of a prompt */
    starts[0] = 0;
    for (int64_t i = 0; i < fed; i++) {
        int64_t known = rows[i].filled + rows[i].tokens;
        starts[i + 1] = starts[i] + rows[i].tokens;
        most = known > most ? known : most;
        int apart = !i || rows[i].prompt != rows[i - 1].prompt;
        if (apart || starts[i + 1] - starts[cuts[parts - 1]] > ROWS) cuts[parts++] = i;
    }
    cuts[parts] = fed;
    step s = {qkv, cos, sin, norm_q, norm_k, prompt_k, prompt_v, out, own_k, own_v, rows, lengths,
              starts, fed, heads, kv_heads, longest, room, most, shared, eps, scale};
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
        int tiled = !none && room.packed;
        if (tiled) begin_tiles(&before);
#endif
#pragma omp for collapse(2) schedule(static)
        for (int64_t k = 0; k < kv_heads; k++)
            for (int64_t part = 0; part < parts; part++) {
                if (none) continue;
                if (size == 64) /* a known size is unrolled */
                    attend_rows(&s, k, cuts[part], cuts[part + 1], 64, &room);
                else if (size == 128)
                    attend_rows(&s, k, cuts[part], cuts[part + 1], 128, &room);
                else
                    attend_rows(&s, k, cuts[part], cuts[part + 1], size, &room);
            }
#if TILES
        if (tiled) end_tiles(&before);
#endif
        if (!none) free(room.all);
    }
    free(starts);
    return failed;
}
