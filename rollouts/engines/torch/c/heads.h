/* Heads and shares: what attention does of decoded tokens and of prompts alike. */
#ifndef ASSAY_HEADS_H
#define ASSAY_HEADS_H

#include "known.h"
#include "tiles.h"

#define ROWS 16 /* rows of one prompt that are looked at together, at most */

static inline void *aligned(void *at) { return (void *)(((uintptr_t)at + 63) / 64 * 64); }

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

/* Shares of `count` scores, in place, padded by zeros to whole vectors. */
static inline void softmax(float *at, int64_t count) {
    int64_t end = whole(count, LANES);
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

/* Scores of `count` keys as shares of 1, and zeros for 16 columns more. */
static inline void shares_of(float *scores, int64_t count, number *shares) {
    softmax(scores, count);
#if PAIRED
    int64_t end = whole(count, LANES);
    store_all(shares, scores, end);
    memset(shares + end, 0, sizeof(number) * LANES);
#else
    (void)shares;
#endif
}

#endif
