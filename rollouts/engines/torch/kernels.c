/* What a decoding step does between its matrix products, on a CPU.
 *
 * Compiled once a machine by kernels.py, with -DBF16=1 for bfloat16 tensors, else for float32.
 * Vectors are those of GCC and Clang, so the compiler maps them to what the processor has. Sums are
 * float32; every result is rounded once. All tensors are contiguous; sizes of the last axis are
 * multiples of 16. Letters are those of decode.py.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16
#define BLOCK 16 /* keys that are looked at together */
#define ROWS 16  /* rows of one prompt that are, at most */
#define MOST 256 /* the largest head */
#define PART 256 /* logits whose sum is kept */
#define AHEAD 512 /* cells that are asked for before they are needed */

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
#if BF16
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

/* Float32 cells that lie anywhere. */
static inline vec lanes(const float *from) {
    vec x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline void keep(float *to, vec x) {
    memcpy(to, &x, sizeof x);
}

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

/* e^x to about 2e-7 of it (Cephes' expf); beyond ±87 that of ±87: next to nothing, or huge. */
static inline vec exponential(vec x) {
    const vec most = (vec){0} + 87.0f;
    x = chosen(x < -most, -most, x);
    x = chosen(x > most, most, x);
    vec n = (x * 1.44269504088896341f + 12582912.0f) - 12582912.0f; /* rounded to a whole number */
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    ints power = (__builtin_convertvector(n, ints) + 127) << 23;
    vec scale;
    memcpy(&scale, &power, sizeof scale);
    return p * scale;
}

static inline float inverse_root(float x) {
    return 1.0f / __builtin_sqrtf(x);
}

/* normed = rms_norm(x + more) * weight, and x = x + more; without `more`, x stays. */
void add_norm(real *x, const real *more, const real *weight, real *normed, int64_t rows,
              int64_t size, float eps, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; row++) {
        real *at = x + row * size, *to = normed + row * size;
        vec squares = {0};
        for (int64_t i = 0; i < size; i += LANES) {
            vec v = load(at + i);
            if (more) {
                store(at + i, v + load(more + row * size + i));
                v = load(at + i);
            }
            squares += v * v;
        }
        float scale = inverse_root(total(squares) / (float)size + eps);
        for (int64_t i = 0; i < size; i += LANES)
            store(to + i, load(at + i) * scale * load(weight + i));
    }
}

/* out (rows, size) = silu(gate) * up, from rows of gate and up, one after the other. */
void silu_mul(const real *both, real *out, int64_t rows, int64_t size, int threads) {
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; row++) {
        const real *gate = both + 2 * row * size, *up = gate + size;
        for (int64_t i = 0; i < size; i += LANES) {
            vec g = load(gate + i);
            store(out + row * size + i, g / (exponential(-g) + 1.0f) * load(up + i));
        }
    }
}

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

static inline void widen(const real *from, int64_t cells, block *to) {
    for (int64_t i = 0; i < cells; i += LANES) {
        __builtin_prefetch(from + i + AHEAD);
        keep(to->at + i, load(from + i));
    }
}

/* Products of a query with BLOCK keys; those beyond the last key mean nothing. */
static inline void scores(const float *query, const block *keys, int64_t size, float *to) {
    for (int64_t j = 0; j < BLOCK; j += 4) {
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
    float peak = at[0];
    for (int64_t j = 1; j < count; j++) peak = at[j] > peak ? at[j] : peak;
    int64_t whole = (count + LANES - 1) / LANES * LANES;
    for (int64_t j = count; j < whole; j++) at[j] = peak - 1e4f;
    vec sum = {0};
    for (int64_t j = 0; j < whole; j += LANES) {
        vec x = exponential(lanes(at + j) - peak);
        keep(at + j, x);
        sum += x;
    }
    float inverse = 1.0f / total(sum);
    for (int64_t j = 0; j < whole; j++) at[j] *= inverse;
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

/* One key head of the fed rows first..last-1, which have the same prompt: its keys and values are
 * read once for all of them. `scratch` holds queries, results and scores of all. */
static inline __attribute__((always_inline)) void attend_rows(const step *s, int64_t k,
                                                              int64_t first, int64_t last,
                                                              int64_t size, float *scratch) {
    int64_t repeat = s->heads / s->kv_heads, count = (last - first) * repeat;
    int64_t start = s->fed ? s->fed[first] : first, group = start / s->width;
    int64_t length = s->lengths[group], columns = s->longest + s->used + 2 * BLOCK;
    int64_t line = (s->heads + 2 * s->kv_heads) * size;
    float *queries = scratch, *mixed = queries + count * size, *shares = mixed + count * size;
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
    for (int64_t j = 0; j < length; j += BLOCK) {
        int64_t some = length - j < BLOCK ? length - j : BLOCK;
        widen(s->prompt_k + prompt + j * size, some * size, &known);
        for (int64_t q = 0; q < count; q++)
            scores(queries + q * size, &known, size, shares + q * columns + j);
    }
    for (int64_t i = first; i < last; i++) {
        int64_t row = s->fed ? s->fed[i] : i, q = (i - first) * repeat;
        int64_t own = (row * s->kv_heads + k) * s->room * size;
        for (int64_t j = 0; j < s->used; j += BLOCK) {
            int64_t some = s->used - j < BLOCK ? s->used - j : BLOCK;
            widen(s->own_k + own + j * size, some * size, &known);
            for (int64_t g = q; g < q + repeat; g++)
                scores(queries + g * size, &known, size, shares + g * columns + length + j);
        }
        for (int64_t g = q; g < q + repeat; g++) softmax(shares + g * columns, length + s->used);
        for (int64_t j = 0; j < s->used; j += BLOCK) {
            int64_t some = s->used - j < BLOCK ? s->used - j : BLOCK;
            widen(s->own_v + own + j * size, some * size, &known);
            for (int64_t g = q; g < q + repeat; g++)
                mix(shares + g * columns + length + j, &known, some, size, mixed + g * size);
        }
    }
    for (int64_t j = 0; j < length; j += BLOCK) {
        int64_t some = length - j < BLOCK ? length - j : BLOCK;
        widen(s->prompt_v + prompt + j * size, some * size, &known);
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
        int64_t cells = ROWS * heads / kv_heads * (2 * size + longest + used + 2 * BLOCK);
        float *scratch = malloc(sizeof(float) * (size_t)cells);
        if (!scratch) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp for collapse(2) schedule(static)
        for (int64_t k = 0; k < kv_heads; k++)
            for (int64_t part = 0; part < parts; part++) {
                if (!scratch) continue;
                if (size == 64) /* a known size is unrolled */
                    attend_rows(&s, k, starts[part], starts[part + 1], 64, scratch);
                else if (size == 128)
                    attend_rows(&s, k, starts[part], starts[part + 1], 128, scratch);
                else
                    attend_rows(&s, k, starts[part], starts[part + 1], size, scratch);
            }
        free(scratch);
    }
    free(starts);
    return failed;
}

/* What sampling needs of logits (rows, size), read as float32: the greatest and its first place, and
 * of every PART columns the greatest and the sum of e^((x - greatest of the row) / temperature).
 * Logits that are not numbers make sums that are none. */
void weigh(const real *logits, int64_t rows, int64_t size, float temperature, int64_t *best,
           float *peaks, float *tops, double *sums, int threads) {
    int64_t parts = (size + PART - 1) / PART;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; row++) {
        const real *at = logits + row * size;
        float *highest = tops + row * parts;
        int64_t part = 0;
        for (int64_t p = 0; p < parts; p++) {
            int64_t end = (p + 1) * PART < size ? (p + 1) * PART : size;
            vec most = load(at + p * PART);
            for (int64_t i = p * PART + LANES; i < end; i += LANES) {
                vec x = load(at + i);
                most = chosen(x > most, x, most);
            }
            float top = most[0];
            for (int i = 1; i < LANES; i++) top = most[i] > top ? most[i] : top;
            highest[p] = top;
            if (top > highest[part]) part = p;
        }
        float peak = highest[part];
        peaks[row] = peak;
        best[row] = part * PART;
        for (int64_t i = part * PART; i < size && i < (part + 1) * PART; i += LANES) {
            vec x = load(at + i);
            int lane = 0;
            while (lane < LANES && x[lane] != peak) lane++;
            if (lane < LANES) {
                best[row] = i + lane;
                break;
            }
        }
        for (int64_t p = 0; p < parts; p++) {
            int64_t end = (p + 1) * PART < size ? (p + 1) * PART : size;
            vec sum = {0};
            for (int64_t i = p * PART; i < end; i += LANES)
                sum += exponential((load(at + i) - peak) / temperature);
            sums[row * parts + p] = total(sum);
        }
    }
}

typedef struct {
    float value;
    int64_t at;
} found;

static int compare(const void *a, const void *b) {
    const found *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* The `count` greatest of each row, the greatest first and equal ones in their order. `tops` are
 * those of `weigh`; at least `count` logits of a row reach `least`. Returns 1 without memory. */
int greatest(const real *logits, int64_t rows, int64_t size, const float *tops, const float *least,
             int64_t count, float *values, int64_t *places, int threads) {
    int64_t parts = (size + PART - 1) / PART;
    int failed = 0;
#pragma omp parallel for num_threads(threads) if (threads > 1)
    for (int64_t row = 0; row < rows; row++) {
        const real *at = logits + row * size;
        int64_t whole = 0, some = 0;
        for (int64_t p = 0; p < parts; p++) whole += tops[row * parts + p] >= least[row];
        found *all = malloc(sizeof(found) * (size_t)(whole * PART + 1));
        if (!all) {
#pragma omp atomic write
            failed = 1;
            continue;
        }
        for (int64_t p = 0; p < parts; p++) {
            if (!(tops[row * parts + p] >= least[row])) continue;
            int64_t end = (p + 1) * PART < size ? (p + 1) * PART : size;
            for (int64_t i = p * PART; i < end; i += LANES) {
                vec x = load(at + i);
                for (int lane = 0; lane < LANES; lane++)
                    if (x[lane] >= least[row]) all[some++] = (found){x[lane], i + lane};
            }
        }
        qsort(all, (size_t)some, sizeof *all, compare);
        for (int64_t i = 0; i < count; i++) {
            found one = i < some ? all[i] : (found){-__builtin_inff(), 0};
            values[row * count + i] = one.value;
            places[row * count + i] = one.at;
        }
        free(all);
    }
    return failed;
}
