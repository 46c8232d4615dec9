// The kernels that the contract's checks launch, and a few for this crate's own tests.
//
// kernels.ptx was made from this file by NVRTC 11.8 with --gpu-architecture=compute_52.

__device__ __forceinline__ unsigned place() { return blockIdx.x * blockDim.x + threadIdx.x; }

extern "C" __global__ void empty() {}

extern "C" __global__ void store(unsigned* to, unsigned n, unsigned value) {
    if (place() < n) {
        to[place()] = value;
    }
}

extern "C" __global__ void add(unsigned* at, unsigned n, unsigned value) {
    if (place() < n) {
        at[place()] += value;
    }
}

extern "C" __global__ void copy(const unsigned* from, unsigned* to, unsigned n) {
    if (place() < n) {
        to[place()] = from[place()];
    }
}

extern "C" __global__ void axpy(const float* x, float* y, unsigned n, float a) {
    if (place() < n) {
        // One rounding for the product and one for the sum, as a host computes it.
        y[place()] = __fadd_rn(__fmul_rn(a, x[place()]), y[place()]);
    }
}

__device__ __forceinline__ unsigned long long nanoseconds() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

extern "C" __global__ void slow_add(unsigned* at, unsigned n, unsigned value, unsigned microseconds) {
    const unsigned long long end = nanoseconds() + microseconds * 1000ull;
    while (nanoseconds() < end) {
    }
    if (place() < n) {
        at[place()] += value;
    }
}

// Does nothing but take its time.
extern "C" __global__ void spin(unsigned microseconds) {
    const unsigned long long end = nanoseconds() + microseconds * 1000ull;
    while (nanoseconds() < end) {
    }
}

// Writes where its argument does not point to memory.
extern "C" __global__ void wild(unsigned* at) { *at = 1; }
