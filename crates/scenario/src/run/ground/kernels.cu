// The operations of scenarios, bit for bit what the interpreter makes of them: each product and each sum is rounded by itself, sums go from
// the first element on, and the compiler is told not to fuse either.
//
// A tensor lies along four dimensions, each a size in the upper half of a number and a stride in the lower half, both in elements.

typedef unsigned long long u64;

struct Lie {
    u64 dims[4];
    __device__ u64 place(u64 i) const {
        u64 at = 0;
        for (int d = 3; d >= 0; --d) {
            u64 size = dims[d] >> 32, stride = (unsigned)dims[d];
            at += i % size * stride;
            i /= size;
        }
        return at;
    }
    __device__ u64 last() const {
        u64 at = 0;
        for (int d = 0; d < 4; ++d) at += ((dims[d] >> 32) - 1) * (unsigned)dims[d];
        return at;
    }
    __device__ bool is(const Lie &other) const {
        bool same = true;
        for (int d = 0; d < 4; ++d) same = same && dims[d] == other.dims[d];
        return same;
    }
};

// A tensor of so many elements, repeated as often as needed, or a number.
struct Operand {
    const float *base;
    float number;
    unsigned count;
    Lie lie;
    __device__ float at(u64 i) const { return base ? base[lie.place(i % count)] : number; }
    // Whether no element of it is written to before the same thread has read it for the last time.
    __device__ bool keeps(const float *to, const Lie &target, unsigned n) const {
        if (!base || base + lie.last() < to || to + target.last() < base) return true;
        return base == to && count == n && lie.is(target);
    }
};

enum { NEG, RELU, SQUARE, ADD, SUB, MUL, MIN, MAX, MIX, COPY };

__device__ float made(unsigned op, float a, float b, float k) {
    switch (op) {
    case NEG: return -a;
    case RELU: return a > 0.0f ? a : 0.0f;
    case SQUARE: return __fmul_rn(a, a);
    case ADD: return __fadd_rn(a, b);
    case SUB: return __fsub_rn(a, b);
    case MUL: return __fmul_rn(a, b);
    case MIN: return b < a || a != a ? b : a;
    case MAX: return b > a || a != a ? b : a;
    case COPY: return b;
    default: {
        float sum = __fadd_rn(__fadd_rn(__fmul_rn(31.0f, a), __fmul_rn(7.0f, b)), k);
        float rest = fmodf(sum, 65521.0f);
        return rest < 0.0f ? __fadd_rn(rest, 65521.0f) : rest;
    }
    }
}

__device__ void elements(unsigned op, unsigned n, unsigned distinct, const Operand &a, const Operand &b, const Operand &k, float *to,
                         const Lie &target) {
    u64 first = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x;
    if (distinct && a.keeps(to, target, n) && b.keeps(to, target, n) && k.keeps(to, target, n)) {
        for (u64 i = first; i < n; i += step) to[target.place(i)] = made(op, a.at(i), b.at(i), k.at(i));
        return;
    }
    // What is read may be written to for another element: everything is read before anything is written, and the last one wins.
    if (first != 0) return;
    float *values = (float *)malloc(n * sizeof(float));
    for (u64 i = 0; values && i < n; ++i) values[i] = made(op, a.at(i), b.at(i), k.at(i));
    // Without room for the values, the wrong ones say so.
    for (u64 i = 0; i < n; ++i) to[target.place(i)] = values ? values[i] : __int_as_float(0x7fc00000);
    free(values);
}

#define LIE(name) u64 name##0, u64 name##1, u64 name##2, u64 name##3
#define AS_LIE(name) {{name##0, name##1, name##2, name##3}}
#define OPERAND(name) int name##_at, float name##_number, unsigned name##_count, LIE(name)
#define AS_OPERAND(name) {name##_at < 0 ? 0 : base[name##_at], name##_number, name##_count, AS_LIE(name)}
#define REST unsigned op, unsigned n, unsigned distinct, int to_at, LIE(to), OPERAND(a), OPERAND(b), OPERAND(k)
#define BODY                                                                                                          \
    Operand a = AS_OPERAND(a), b = AS_OPERAND(b), k = AS_OPERAND(k);                                                   \
    Lie target = AS_LIE(to);                                                                                           \
    elements(op, n, distinct, a, b, k, base[to_at], target);

extern "C" __global__ void elements1(float *p0, REST) { float *base[] = {p0}; BODY }
extern "C" __global__ void elements2(float *p0, float *p1, REST) { float *base[] = {p0, p1}; BODY }
extern "C" __global__ void elements3(float *p0, float *p1, float *p2, REST) { float *base[] = {p0, p1, p2}; BODY }
extern "C" __global__ void elements4(float *p0, float *p1, float *p2, float *p3, REST) { float *base[] = {p0, p1, p2, p3}; BODY }

extern "C" __global__ void matmul(const float *x, const float *y, float *to, unsigned m, unsigned k, unsigned n, LIE(x), LIE(y)) {
    Lie of_x = AS_LIE(x), of_y = AS_LIE(y);
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < (u64)m * n; i += (u64)gridDim.x * blockDim.x) {
        u64 row = i / n, column = i % n;
        float sum = 0.0f;
        for (u64 j = 0; j < k; ++j) sum = __fadd_rn(sum, __fmul_rn(x[of_x.place(row * k + j)], y[of_y.place(j * n + column)]));
        to[i] = sum;
    }
}

extern "C" __global__ void sum(const float *from, float *to, unsigned rows, unsigned last, LIE(from)) {
    Lie lie = AS_LIE(from);
    for (u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += (u64)gridDim.x * blockDim.x) {
        float sum = 0.0f;
        for (u64 i = 0; i < last; ++i) sum = __fadd_rn(sum, from[lie.place(row * last + i)]);
        to[row] = sum;
    }
}

extern "C" __global__ void fill(float *to, unsigned n, float value, unsigned counts) {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) to[i] = counts ? (float)i : value;
}

extern "C" __global__ void values(float *to, unsigned first, unsigned n, float v0, float v1, float v2, float v3, float v4, float v5,
                                  float v6, float v7) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    float all[] = {v0, v1, v2, v3, v4, v5, v6, v7};
    for (unsigned i = 0; i < n; ++i) to[first + i] = all[i];
}

extern "C" __global__ void draw(const u64 *state, float *to, unsigned n, u64 base) {
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x)
        to[i] = philox_unit_f32(philox_draw(state[0], state[1] + base + i).x);
}
