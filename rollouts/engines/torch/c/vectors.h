/* Vectors of 16 numbers, and tensors read and written by them.
 *
 * With -DBF16=1 tensors are bfloat16, else float32. Vectors are those of GCC and Clang, so the
 * compiler maps them to what the processor has.
 */
#ifndef ASSAY_VECTORS_H
#define ASSAY_VECTORS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define WIDE 1
#include <immintrin.h>
#endif

#define LANES 16

typedef float vec __attribute__((vector_size(64)));
typedef float half_vec __attribute__((vector_size(32)));
typedef float quarter_vec __attribute__((vector_size(16)));
typedef int32_t ints __attribute__((vector_size(64)));
typedef uint32_t words __attribute__((vector_size(64)));
typedef uint16_t shorts __attribute__((vector_size(32)));

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t half_ints __attribute__((vector_size(32)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (half_ints){__VA_ARGS__})
#endif

#if BF16
typedef uint16_t real;
#else
typedef float real;
#endif

static inline vec load(const real *from) {
#if BF16
    shorts narrow;
    memcpy(&narrow, from, sizeof narrow);
    words wide = __builtin_convertvector(narrow, words) << 16;
    vec x;
    memcpy(&x, &wide, sizeof x);
#else
    vec x;
    memcpy(&x, from, sizeof x);
#endif
    return x;
}

static inline void store(real *to, vec x) {
#if BF16 && WIDE && defined(__AVX512BF16__)
    __m256bh narrow = _mm512_cvtneps_pbh((__m512)x); /* what is below 1e-38 becomes 0 */
    memcpy(to, &narrow, sizeof narrow);
#elif BF16
    words bits;
    memcpy(&bits, &x, sizeof bits);
    words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16; /* to nearest, ties to even */
    words nan = (words)(x != x);
    rounded = (rounded & ~nan) | (0x7fc0 & nan);
    shorts narrow = __builtin_convertvector(rounded, shorts);
    memcpy(to, &narrow, sizeof narrow);
#else
    memcpy(to, &x, sizeof x);
#endif
}

/* Bring a line of memory near. Past the end of what may be read this does nothing. */
static inline void ask_for(const void *at) { __builtin_prefetch(at, 0, 2); }

/* Float32 cells that lie anywhere. */
static inline vec lanes(const float *from) {
    vec x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline void keep(float *to, vec x) {
    memcpy(to, &x, sizeof x);
}

static inline void store_all(real *to, const float *from, int64_t count) {
    for (int64_t i = 0; i < count; i += LANES) store(to + i, lanes(from + i));
}

/* The next multiple of `side`. */
static inline int64_t whole(int64_t count, int64_t side) { return (count + side - 1) / side * side; }

/* Both halves of a vector, added up. */
static inline half_vec halved(vec x) {
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7) +
           __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
#else
    half_vec low, high;
    memcpy(&low, &x, sizeof low);
    memcpy(&high, (char *)&x + sizeof low, sizeof high);
    return low + high;
#endif
}

static inline quarter_vec quartered(half_vec x) {
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(x, x, 0, 1, 2, 3) + __builtin_shufflevector(x, x, 4, 5, 6, 7);
#else
    quarter_vec low, high;
    memcpy(&low, &x, sizeof low);
    memcpy(&high, (char *)&x + sizeof low, sizeof high);
    return low + high;
#endif
}

static inline float total(vec x) {
    quarter_vec a = quartered(halved(x));
    return (a[0] + a[2]) + (a[1] + a[3]);
}

/* The sums of four vectors, in order. */
static inline quarter_vec totals(vec x0, vec x1, vec x2, vec x3) {
    half_vec a = halved(x0), b = halved(x1), c = halved(x2), d = halved(x3);
    half_vec ab = SHUFFLE(a, b, 0, 8, 1, 9, 4, 12, 5, 13) + SHUFFLE(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    half_vec cd = SHUFFLE(c, d, 0, 8, 1, 9, 4, 12, 5, 13) + SHUFFLE(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
    return quartered(SHUFFLE(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13) +
                     SHUFFLE(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15));
}

static inline vec chosen(ints which, vec x, vec y) {
    ints a, b;
    memcpy(&a, &x, sizeof a);
    memcpy(&b, &y, sizeof b);
    a = (a & which) | (b & ~which);
    memcpy(&x, &a, sizeof x);
    return x;
}

/* The greater of each pair. */
static inline vec larger(vec x, vec y) {
#if WIDE
    return (vec)_mm512_max_ps((__m512)x, (__m512)y);
#else
    return chosen(x > y, x, y);
#endif
}

/* The greatest of a vector. */
static inline float highest(vec x) {
#if WIDE
    return _mm512_reduce_max_ps((__m512)x);
#else
    float most = x[0];
    for (int i = 1; i < LANES; i++) most = x[i] > most ? x[i] : most;
    return most;
#endif
}

/* Whether a comparison holds for some pair. */
static inline int any(ints which) {
#if WIDE
    return _mm512_test_epi32_mask((__m512i)which, (__m512i)which) != 0;
#else
    int64_t parts[LANES / 2], found = 0;
    memcpy(parts, &which, sizeof parts);
    for (int i = 0; i < LANES / 2; i++) found |= parts[i];
    return found != 0;
#endif
}

/* e^x to about 2e-7 of it (Cephes' expf); beyond ±87 that of ±87: next to nothing, or huge. */
static inline vec exponential(vec x) {
    const vec most = (vec){0} + 87.0f;
#if WIDE
    x = (vec)_mm512_min_ps((__m512)most, _mm512_max_ps((__m512)-most, (__m512)x)); /* NaN stays */
    vec n = (vec)_mm512_roundscale_ps((__m512)(x * 1.44269504088896341f), 8); /* to nearest */
#else
    x = chosen(x < -most, -most, x);
    x = chosen(x > most, most, x);
    vec n = (x * 1.44269504088896341f + 12582912.0f) - 12582912.0f; /* rounded to a whole number */
#endif
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
#if WIDE
    return (vec)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    ints power = (__builtin_convertvector(n, ints) + 127) << 23;
    vec scale;
    memcpy(&scale, &power, sizeof scale);
    return p * scale;
#endif
}

/* 1 / x for x from 1 to 1e38, to about 1e-7 of it: a vector's division takes as long as 16 products.
 * The first guess negates the exponent; each step of Newton's method squares the error. */
static inline vec reciprocal(vec x) {
    words bits;
    memcpy(&bits, &x, sizeof bits);
    bits = 0x7ef311c7 - bits;
    vec y;
    memcpy(&y, &bits, sizeof y);
    y = y * (2.0f - x * y);
    y = y * (2.0f - x * y);
    return y * (2.0f - x * y);
}

/* silu(gate) * up */
static inline vec gated(vec gate, vec up) {
    return gate * reciprocal(exponential(-gate) + 1.0f) * up;
}

static inline float inverse_root(float x) {
    return 1.0f / __builtin_sqrtf(x);
}

#endif
