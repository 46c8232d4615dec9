// The gather kernel: copies many pieces of memory by one launch. Each block copies one chunk, which the table names;
// the sources are arguments, so that one patch of the node replaces all of them. And the copy kernel, both ends of which
// are arguments.
//
// gather.ptx was made from this file by NVRTC 11.8 with --gpu-architecture=compute_52, so that every driver from
// CUDA 11.8 on takes it, for every GPU from Maxwell on.

typedef unsigned long long u64;

struct __align__(16) Chunk {
    u64 to;      // where the chunk goes
    u64 offset;  // bytes from the start of the row's source
    u64 bytes;   // length of the chunk
    u64 row;     // whose source it is
};

template <int N>
struct Sources {
    u64 at[N];
};

// Copies whole elements of T, both ends aligned to them.
template <typename T>
__device__ __forceinline__ void copy_elements(T* to, const T* from, u64 count) {
    const u64 step = blockDim.x;
    u64 i = threadIdx.x;
    for (; i + 3 * step < count; i += 4 * step) {
        const T a = from[i], b = from[i + step], c = from[i + 2 * step], d = from[i + 3 * step];
        to[i] = a;
        to[i + step] = b;
        to[i + 2 * step] = c;
        to[i + 3 * step] = d;
    }
    for (; i < count; i += step) {
        to[i] = from[i];
    }
}

// Copies bytes up to the first aligned destination, then whole elements, then the bytes that are left.
// Source and destination lie equally far from an aligned address.
template <typename T>
__device__ __forceinline__ void copy_aligned(char* to, const char* from, u64 bytes) {
    u64 head = (0 - (u64)to) & (sizeof(T) - 1);
    head = head < bytes ? head : bytes;
    const u64 count = (bytes - head) / sizeof(T);
    const u64 done = head + count * sizeof(T);
    copy_elements((T*)(to + head), (const T*)(from + head), count);
    if (threadIdx.x < head) {
        to[threadIdx.x] = from[threadIdx.x];
    }
    if (done + threadIdx.x < bytes) {
        to[done + threadIdx.x] = from[done + threadIdx.x];
    }
}

// The compiler would copy a small array to local memory before it indexes it, so the few are chosen one by one.
template <int N>
__device__ __forceinline__ u64 source(const Sources<N>& sources, u64 row) {
    if (N > 16) {
        return sources.at[row];
    }
    u64 found = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        found = row == i ? sources.at[i] : found;
    }
    return found;
}

// Copies with the widest elements for which both ends lie equally far from an aligned address.
__device__ __forceinline__ void copy_bytes(char* to, const char* from, u64 bytes) {
    const u64 apart = (u64)to ^ (u64)from;
    if ((apart & 15) == 0) {
        copy_aligned<uint4>(to, from, bytes);
    } else if ((apart & 7) == 0) {
        copy_aligned<uint2>(to, from, bytes);
    } else if ((apart & 3) == 0) {
        copy_aligned<unsigned int>(to, from, bytes);
    } else {
        copy_elements(to, from, bytes);
    }
}

template <int N>
__device__ __forceinline__ void gather(const Chunk* __restrict__ table, const Sources<N>& sources) {
    const Chunk chunk = table[blockIdx.x];
    copy_bytes((char*)chunk.to, (const char*)(source<N>(sources, chunk.row) + chunk.offset), chunk.bytes);
}

extern "C" __global__ void gather_8(const Chunk* table, const Sources<8> sources) { gather<8>(table, sources); }
extern "C" __global__ void gather_32(const Chunk* table, const Sources<32> sources) { gather<32>(table, sources); }
extern "C" __global__ void gather_128(const Chunk* table, const Sources<128> sources) { gather<128>(table, sources); }

// Each block copies one chunk, but for the last ones there may be nothing left.
extern "C" __global__ void copy_range(char* to, const char* from, u64 bytes, u64 chunk) {
    const u64 start = blockIdx.x * chunk;
    if (start < bytes) {
        copy_bytes(to + start, from + start, bytes - start < chunk ? bytes - start : chunk);
    }
}
