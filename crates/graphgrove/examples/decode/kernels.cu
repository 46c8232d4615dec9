// The kernels of the language model.

// x[i] = the element of its token's row of the table.
extern "C" __global__ void embed(const unsigned *tokens, const float *table, float *x, unsigned b, unsigned d,
                                 unsigned vocabulary) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= b * d) return;
    unsigned token = tokens[i / d];
    x[i] = token < vocabulary ? table[token * d + i % d] : 0.0f;
}

// Negative elements become zero.
extern "C" __global__ void relu(float *y, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(y[i], 0.0f);
}

// Writes a row of each sequence behind what its cache holds; a full cache is left alone.
extern "C" __global__ void append(const float *x, const unsigned *length, float *cache, unsigned b, unsigned d,
                                  unsigned capacity) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= b * d || *length >= capacity) return;
    cache[(i / d * capacity + *length) * d + i % d] = x[i];
}

// One thread for each element of x.
extern "C" __global__ void attend(const float *q, const float *keys, const float *values, const unsigned *length, float *x,
                                  unsigned b, unsigned d, unsigned capacity) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= b * d) return;
    unsigned sequence = i / d, column = i % d, so_far = min(*length + 1, capacity);
    const float *query = q + sequence * d;
    float total = 0.0f, mean = 0.0f;
    for (unsigned token = 0; token < so_far; ++token) {
        const float *key = keys + (sequence * capacity + token) * d;
        float product = 0.0f;
        for (unsigned at = 0; at < d; ++at) product += query[at] * key[at];
        float fit = expf(product / sqrtf((float)d));
        total += fit;
        mean += fit * values[(sequence * capacity + token) * d + column];
    }
    x[i] += mean / total;
}

extern "C" __global__ void add(const float *y, float *x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += y[i];
}

// One block of 128 threads for each sequence. Of rows that are equally like x the first is chosen.
extern "C" __global__ void choose(const float *x, const float *table, unsigned *tokens, unsigned b, unsigned d,
                                  unsigned vocabulary) {
    __shared__ float scores[128];
    __shared__ unsigned rows[128];
    const float *of = x + blockIdx.x * d;
    float best = -3.402823466e+38f;
    unsigned row = 0;
    for (unsigned next = threadIdx.x; next < vocabulary; next += blockDim.x) {
        float score = 0.0f;
        for (unsigned at = 0; at < d; ++at) score += of[at] * table[next * d + at];
        if (score > best) {
            best = score;
            row = next;
        }
    }
    scores[threadIdx.x] = best;
    rows[threadIdx.x] = row;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            float other = scores[threadIdx.x + half];
            bool is_first = rows[threadIdx.x + half] < rows[threadIdx.x];
            if (other > scores[threadIdx.x] || (other == scores[threadIdx.x] && is_first)) {
                scores[threadIdx.x] = other;
                rows[threadIdx.x] = rows[threadIdx.x + half];
            }
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) tokens[blockIdx.x] = rows[0];
}

extern "C" __global__ void advance(unsigned *length) {
    *length += 1;
}
