// The kernels of the classifier. Every sum is added up in a fixed order, so that a result does not depend on how its kernel was
// launched.

// y[i] += b[i % n], negative elements set to zero if relu is 1.
extern "C" __global__ void bias(float *y, const float *b, unsigned count, unsigned n, unsigned relu) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    float value = y[i] + b[i % n];
    y[i] = relu == 1 ? fmaxf(value, 0.0f) : value;
}

// Softmax cross entropy over m rows of n, by one block of 128 threads.
extern "C" __global__ void cross_entropy(const float *logits, const unsigned *classes, float *gradient, float *report,
                                         unsigned m, unsigned n) {
    __shared__ float losses[128], hits[128];
    float loss = 0.0f, hit = 0.0f;
    for (unsigned row = threadIdx.x; row < m; row += blockDim.x) {
        const float *of = logits + row * n;
        unsigned of_class = classes[row], first = 0;
        float largest = of[0], total = 0.0f;
        for (unsigned i = 1; i < n; ++i)
            if (of[i] > largest) {
                largest = of[i];
                first = i;
            }
        for (unsigned i = 0; i < n; ++i) total += expf(of[i] - largest);
        if (of_class < n) loss -= logf(expf(of[of_class] - largest) / total);
        hit += first == of_class ? 1.0f : 0.0f;
        for (unsigned i = 0; i < n; ++i)
            gradient[row * n + i] = (expf(of[i] - largest) / total - (i == of_class ? 1.0f : 0.0f)) / m;
    }
    losses[threadIdx.x] = loss;
    hits[threadIdx.x] = hit;
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            losses[threadIdx.x] += losses[threadIdx.x + half];
            hits[threadIdx.x] += hits[threadIdx.x + half];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        report[0] = losses[0] / m;
        report[1] = hits[0];
    }
}

// db[i] = the sum of column i of dy (m x n).
extern "C" __global__ void bias_gradient(const float *dy, float *db, unsigned m, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0.0f;
    for (unsigned row = 0; row < m; ++row) sum += dy[row * n + i];
    db[i] = sum;
}

// dx[i] = 0 where y[i] is not positive.
extern "C" __global__ void where_positive(float *dx, const float *y, unsigned count) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count && !(y[i] > 0.0f)) dx[i] = 0.0f;
}

extern "C" __global__ void add_to(float *sum, const float *x, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) sum[i] += x[i];
}

extern "C" __global__ void momentum(const float *gradient, const float *rate, float *w, float *v, unsigned n, float scale) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float next = 0.9f * v[i] + scale * gradient[i];
    v[i] = next;
    w[i] -= rate[0] * next;
}
