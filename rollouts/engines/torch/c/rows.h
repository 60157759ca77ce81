/* Rows that are fed a few tokens each: what attention of any kind does for them. */
#ifndef ASSAY_ROWS_H
#define ASSAY_ROWS_H

#include "heads.h"

/* A row that is fed: its prompt, its place in `own`, the columns there that are filled, new tokens. */
typedef struct {
    int64_t prompt, place, filled, tokens;
} row;

/* `starts`: of each row's tokens; `most`: columns of a row of `own`, with the new ones, at most. */
typedef struct {
    const real *qkv, *cos, *sin, *norm_q, *norm_k, *prompt_k, *prompt_v;
    real *out, *own_k, *own_v;
    const row *rows;
    const int64_t *lengths, *starts;
    int64_t fed, heads, kv_heads, longest, room, most, shared;
    float eps, scale;
} step;

/* What a thread computes in, for at most `most` queries: them and results (most, size), their scores
 * (most, columns), and what keys and values are multiplied by, rounded or the same; where there are
 * tiles, the queries as such. */
typedef struct {
    float *queries, *mixed, *scores;
    number *asked, *shares;
    real *packed; /* null: no tiles */
    int64_t columns;
    void *all;
} scratch;

static int take_scratch(const step *s, int64_t size, scratch *room) {
    int64_t most = whole(ROWS * (s->heads / s->kv_heads), 16) + 16;
    int64_t columns = whole(s->longest + s->most, 32) + 32;
    int64_t floats = most * (2 * size + columns), cells = 0, packed = 0;
#if PAIRED
    cells = most * (size + columns);
#endif
#if TILES
    if (size % PAIRS == 0 && tiles_allowed()) packed = most * size;
#endif
    size_t bytes = sizeof(float) * (size_t)floats + sizeof(real) * (size_t)(cells + packed) + 256;
    if (!(room->all = malloc(bytes))) return 1;
    room->columns = columns;
    room->queries = aligned(room->all);
    room->mixed = room->queries + most * size;
    room->scores = room->mixed + most * size;
#if PAIRED
    room->asked = aligned(room->queries + floats);
    room->shares = room->asked + most * size;
    room->packed = packed ? aligned(room->shares + most * columns) : NULL;
#else
    room->asked = room->queries;
    room->shares = room->scores;
    room->packed = NULL;
#endif
    return 0;
}

/* The new tokens of a row join its keys and values; their queries are turned. */
static inline __attribute__((always_inline)) void take_row(const step *s, int64_t k, int64_t i,
                                                           int64_t size, float *queries, float *turning) {
    int64_t repeat = s->heads / s->kv_heads, line = (s->heads + 2 * s->kv_heads) * size;
    const row *r = s->rows + i;
    int64_t newest = ((r->place * s->kv_heads + k) * s->room + r->filled) * size;
    for (int64_t t = 0; t < r->tokens; t++) {
        int64_t at = s->starts[i] + t;
        const real *heads = s->qkv + at * line, *c = s->cos + at * size, *d = s->sin + at * size;
        turned(heads + (s->heads + k) * size, s->norm_k, c, d, size, s->eps, 1.0f, turning);
        store_all(s->own_k + newest + t * size, turning, size);
        memcpy(s->own_v + newest + t * size, heads + (s->heads + s->kv_heads + k) * size,
               sizeof(real) * (size_t)size);
        for (int64_t g = 0; g < repeat; g++)
            turned(heads + (k * repeat + g) * size, s->norm_q, c, d, size, s->eps, s->scale,
                   queries + (t * repeat + g) * size);
    }
}

#endif
