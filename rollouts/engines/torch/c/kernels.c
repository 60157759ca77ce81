/* What decoding and training do between their matrix products, on a CPU.
 *
 * Compiled once a machine by kernels.py, as one file, so that small functions become part of large
 * ones. Sums are float32; every result is rounded once. All tensors are contiguous, and sizes of
 * the last axis are multiples of 16 where nothing else is said. Letters are those of cpu_decode.py
 * and gpu_decode.py.
 */

#include "attention.c"
#include "prompts.c"
#include "layers.c"
#include "logits.c"
#include "products.c"
#include "decode.c"
#include "training.c"
#include "blocks.c"
