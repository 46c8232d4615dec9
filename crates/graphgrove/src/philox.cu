// The 128 bits of draw `number` of a seed, by Philox4x32-10: ten rounds of the bijection, with the number as the low half of the
// counter and the seed as the key.
__device__ inline uint4 philox_draw(unsigned long long seed, unsigned long long number) {
    unsigned first = (unsigned)seed, second = (unsigned)(seed >> 32);
    uint4 words = make_uint4((unsigned)number, (unsigned)(number >> 32), 0u, 0u);
    for (int round = 0; round < 10; ++round) {
        unsigned long long left = 0xD2511F53ull * words.x, right = 0xCD9E8D57ull * words.z;
        words = make_uint4((unsigned)(right >> 32) ^ words.y ^ first, (unsigned)right,
                           (unsigned)(left >> 32) ^ words.w ^ second, (unsigned)left);
        first += 0x9E3779B9u;
        second += 0xBB67AE85u;
    }
    return words;
}

// A random word as a number from 0 up to, but without, 1: its upper 24 bits, which a float holds exactly.
__device__ inline float philox_unit_f32(unsigned word) { return (float)(word >> 8) * (1.0f / 16777216.0f); }
