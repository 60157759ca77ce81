/* What training needs besides: gradients, and attention by blocks of sequences.
 *
 * T positions stand in padded blocks of sequences (R, L); letters are those of train/model/forward.py.
 */

#include "cells.h"

/* Gradients of `add_norm`: d_x = d_sum + that through the norm, and of the weight, float32
 * (threads, size), one line a thread. x is the sum; d_sum may be null. */
void norm_back(const real *x, const real *weight, const float *scales, const real *d_normed,
               const real *d_sum, real *d_x, float *d_weight, int64_t rows, int64_t size,
               int threads) {
    memset(d_weight, 0, sizeof(float) * (size_t)(threads * size));
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int part = 0; part < threads; part++) {
        float *mine = d_weight + part * size;
        for (int64_t row = rows * part / threads; row < rows * (part + 1) / threads; row++) {
            const real *at = x + row * size, *grad = d_normed + row * size;
            float scale = scales[row];
            vec products = {0};
            for (int64_t i = 0; i < size; i += LANES) {
                vec pulled = load(grad + i) * load(at + i);
                products += pulled * load(weight + i);
                keep(mine + i, lanes(mine + i) + pulled * scale);
            }
            float back = total(products) / (float)size * scale * scale * scale;
            for (int64_t i = 0; i < size; i += LANES) {
                vec d = load(grad + i) * load(weight + i) * scale - load(at + i) * back;
                if (d_sum) d += load(d_sum + row * size + i);
                store(d_x + row * size + i, d);
            }
        }
    }
}

/* Gradients of `silu_mul`. */
void silu_back(const real *both, const real *d_out, real *d_both, int64_t rows, int64_t size,
               int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; row++) {
        const real *gate = both + 2 * row * size, *up = gate + size;
        real *to = d_both + 2 * row * size;
        for (int64_t i = 0; i < size; i += LANES) {
            vec g = load(gate + i), d = load(d_out + row * size + i);
            vec open = reciprocal(exponential(-g) + 1.0f);
            store(to + i, d * load(up + i) * open * (1.0f + g * (1.0f - open)));
            store(to + size + i, d * g * open);
        }
    }
}

typedef struct {
    int64_t length, heads, kv_heads, size;
} layout;

/* Where head h of a slot (row r, column l) stands in the blocks of queries (R*K, G*L, C). */
static inline int64_t query_at(const layout *s, int64_t slot, int64_t h) {
    int64_t repeat = s->heads / s->kv_heads, row = slot / s->length, column = slot % s->length;
    int64_t k = h / repeat, g = h % repeat;
    return (((row * s->kv_heads + k) * repeat + g) * s->length + column) * s->size;
}

/* The same in blocks of keys or values (R*K, L, C). */
static inline int64_t key_at(const layout *s, int64_t slot, int64_t k) {
    int64_t row = slot / s->length, column = slot % s->length;
    return ((row * s->kv_heads + k) * s->length + column) * s->size;
}

/* A head turned by its place, or (`sign` -1) turned back. */
static inline void turn_head(const real *from, real *to, const real *cos, const real *sin,
                             int64_t size, float sign) {
    int64_t half = size / 2;
    for (int64_t i = 0; i < half; i += LANES) {
        vec a = load(from + i), b = load(from + half + i);
        vec c = load(cos + i), s = load(sin + i) * sign;
        store(to + i, a * c - b * s);
        store(to + half + i, b * c + a * s);
    }
}

/* Blocks of queries, keys and values from heads (T, H+2K, C) as projected: queries and keys turned.
 * rows (slots,): the position in each slot, padding included. cos and sin (T, C). */
void to_blocks(const real *heads, const real *cos, const real *sin, const int64_t *rows, real *q,
               real *k, real *v, int64_t slots, int64_t length, int64_t count, int64_t kv_heads,
               int64_t size, int threads) {
    layout s = {length, count, kv_heads, size};
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t slot = 0; slot < slots; slot++) {
        const real *at = heads + rows[slot] * (count + 2 * kv_heads) * size;
        const real *c = cos + rows[slot] * size, *t = sin + rows[slot] * size;
        for (int64_t h = 0; h < count; h++, at += size)
            turn_head(at, q + query_at(&s, slot, h), c, t, size, 1.0f);
        for (int64_t h = 0; h < kv_heads; h++, at += size)
            turn_head(at, k + key_at(&s, slot, h), c, t, size, 1.0f);
        for (int64_t h = 0; h < kv_heads; h++, at += size)
            memcpy(v + key_at(&s, slot, h), at, sizeof(real) * (size_t)size);
    }
}

/* Gradients of heads, for the positions whose place is one of the slots from `first` on. */
void from_blocks(const real *d_q, const real *d_k, const real *d_v, const real *cos,
                 const real *sin, const int64_t *place, int64_t first, int64_t slots, real *d_heads,
                 int64_t positions, int64_t length, int64_t count, int64_t kv_heads, int64_t size,
                 int threads) {
    layout s = {length, count, kv_heads, size};
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t t = 0; t < positions; t++) {
        int64_t slot = place[t] - first;
        if (slot < 0 || slot >= slots) continue;
        real *to = d_heads + t * (count + 2 * kv_heads) * size;
        const real *c = cos + t * size, *n = sin + t * size;
        for (int64_t h = 0; h < count; h++, to += size)
            turn_head(d_q + query_at(&s, slot, h), to, c, n, size, -1.0f);
        for (int64_t h = 0; h < kv_heads; h++, to += size)
            turn_head(d_k + key_at(&s, slot, h), to, c, n, size, -1.0f);
        for (int64_t h = 0; h < kv_heads; h++, to += size)
            memcpy(to, d_v + key_at(&s, slot, h), sizeof(real) * (size_t)size);
    }
}

/* Between results in blocks (R*K, G*L, C) and by position (T, H, C), for the positions whose place is
 * one of the slots from `first` on: out of the blocks, or (`into`) into them, zeros elsewhere. */
void move_heads(real *blocks, real *flat, const int64_t *place, int64_t first, int64_t slots,
                int64_t positions, int64_t length, int64_t count, int64_t kv_heads, int64_t size,
                int64_t into, int threads) {
    layout s = {length, count, kv_heads, size};
    size_t bytes = sizeof(real) * (size_t)size;
    if (into) memset(blocks, 0, bytes * (size_t)(slots * count));
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t t = 0; t < positions; t++) {
        int64_t slot = place[t] - first;
        if (slot < 0 || slot >= slots) continue;
        for (int64_t h = 0; h < count; h++) {
            real *block = blocks + query_at(&s, slot, h), *line = flat + (t * count + h) * size;
            if (into)
                memcpy(block, line, bytes);
            else
                memcpy(line, block, bytes);
        }
    }
}

/* scores (R, repeat, L, J) become softmax(scores * scale + mask), in place; mask (R, L, J) is 0 or
 * -inf, and ends (R, L) counts the columns up to its last 0, of which every line has one. J is any
 * number. Returns 1 where there is no memory. */
int shares(real *scores, const real *mask, const int64_t *ends, int64_t rows, int64_t repeat,
           int64_t length, int64_t reach, float scale, int threads) {
    int failed = 0;
#pragma omp parallel num_threads(threads) if (threads > 1)
    {
        float *line = malloc(sizeof(float) * (size_t)(reach + LANES));
        if (!line) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < rows * repeat * length; i++) {
            if (!line) continue;
            int64_t asks = i / (repeat * length) * length + i % length, end = ends[asks];
            real *at = scores + i * reach;
            const real *seen = mask + asks * reach;
            const float none = -__builtin_inff();
            vec most = (vec){0} + none, sum = {0};
            for (int64_t j = 0; j < end; j += LANES) {
                vec x = load_some(at + j, end - j, 0) * scale;
                x += load_some(seen + j, end - j, none);
                keep(line + j, x);
                most = chosen(x > most, x, most);
            }
            float peak = highest(most);
            for (int64_t j = 0; j < end; j += LANES) {
                vec x = lanes(line + j) - peak;
                x = chosen(x < -86.0f, (vec){0}, exponential(x)); /* what is masked is 0 exactly */
                keep(line + j, x);
                sum += x;
            }
            float inverse = 1.0f / total(sum);
            for (int64_t j = 0; j < end; j += LANES)
                store_some(at + j, lanes(line + j) * inverse, end - j);
            memset(at + end, 0, sizeof(real) * (size_t)(reach - end));
        }
        free(line);
    }
    return failed;
}

/* Gradients of scores from those of their shares, in place; both (R, repeat, L, J). */
void shares_back(const real *shares, real *grads, const int64_t *ends, int64_t rows, int64_t repeat,
                 int64_t length, int64_t reach, float scale, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < rows * repeat * length; i++) {
        int64_t end = ends[i / (repeat * length) * length + i % length];
        const real *p = shares + i * reach;
        real *d = grads + i * reach;
        vec sum = {0};
        for (int64_t j = 0; j < end; j += LANES)
            sum += load_some(p + j, end - j, 0) * load_some(d + j, end - j, 0);
        float mean = total(sum);
        for (int64_t j = 0; j < end; j += LANES) {
            vec x = load_some(p + j, end - j, 0) * (load_some(d + j, end - j, 0) - mean);
            store_some(d + j, x * scale, end - j);
        }
        memset(d + end, 0, sizeof(real) * (size_t)(reach - end));
    }
}

/* to (size, rows) of from (rows, size); rows is any number. In blocks, for each of whose lines the
 * processor can keep in mind where in memory its page is. */
void transpose(const real *from, real *to, int64_t rows, int64_t size, int threads) {
    const int64_t wide = 8 * LANES, tall = 4 * LANES;
    int64_t whole = rows / LANES * LANES;
#pragma omp parallel for num_threads(threads) if (threads > 1) schedule(static)
    for (int64_t left = 0; left < size; left += wide) {
        int64_t right = left + wide < size ? left + wide : size;
        for (int64_t top = 0; top < whole; top += tall)
            for (int64_t j = left; j < right; j += LANES)
                for (int64_t i = top; i < top + tall && i < whole; i += LANES)
                    turn_square(from + i * size + j, size, to + j * rows + i, rows);
        for (int64_t i = whole; i < rows; i++)
            for (int64_t j = left; j < right; j++) to[j * rows + i] = from[i * size + j];
    }
}

/* Of logits (rows, size), divided by the temperature: the greatest, the sum of e^(x - greatest), and
 * the sum of e^(x - greatest) * (x - greatest), each (rows,). */
void law(const real *logits, int64_t rows, int64_t size, float temperature, float *peaks,
         float *sums, float *dots, int threads) {
    float warmth = 1.0f / temperature;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; row++) {
        const real *at = logits + row * size;
        vec most = load(at), sum = {0}, dot = {0};
        for (int64_t i = LANES; i < size; i += LANES) {
            vec x = load(at + i);
            most = chosen(x > most, x, most);
        }
        float peak = highest(most);
        for (int64_t i = 0; i < size; i += LANES) {
            vec x = (load(at + i) - peak) * warmth, e = exponential(x);
            sum += e;
            dot += e * x;
        }
        peaks[row] = peak * warmth;
        sums[row] = total(sum);
        dots[row] = total(dot);
    }
}

/* Gradients of logits, in their place: grads (rows,) of the targets' log-probabilities, lse (rows,) of
 * the logits divided by the temperature. */
void law_back(real *logits, const int64_t *targets, const float *lse, const float *grads,
              int64_t rows, int64_t size, float temperature, int threads) {
    float warmth = 1.0f / temperature;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; row++) {
        real *at = logits + row * size;
        float grad = grads[row] * warmth;
        int64_t target = targets[row], line = target / LANES * LANES;
        vec wanted = {0};
        wanted[target - line] = grad;
        for (int64_t i = 0; i < size; i += LANES) {
            vec d = exponential(load(at + i) * warmth - lse[row]) * -grad;
            if (i == line) d += wanted;
            store(at + i, d);
        }
    }
}

/* to (count,) = from, up or down by a threshold of each place: see train/model/optim.py. */
void copy_down(const float *from, real *to, int64_t count, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t i = 0; i < count; i++) {
#if BF16
        uint32_t bits, threshold = ((uint32_t)i * 2654435761u) >> 16;
        memcpy(&bits, from + i, sizeof bits);
        to[i] = (real)((bits + threshold) >> 16);
#else
        to[i] = from[i];
#endif
    }
}
