// What generated and hand-written CUDA sources use of CUDA, for g++: vector types, intrinsics, launches.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "fibers.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __launch_bounds__(...)
#define threadIdx (::emu::current->thread)
#define blockIdx (::emu::block_index)
#define blockDim (::emu::block_size)
#define gridDim (::emu::grid_size)
#define warpSize 32

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};


#define EMU_VECTORS(T, name)                                                    \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };                            \
  struct name##3 { T x, y, z; };                                                \
  struct alignas(sizeof(T) * 4 < 16 ? sizeof(T) * 4 : 16) name##4 { T x, y, z, w; }; \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                    \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
EMU_VECTORS(float, float)
EMU_VECTORS(int, int)
EMU_VECTORS(unsigned short, ushort)
EMU_VECTORS(unsigned char, uchar)
EMU_VECTORS(signed char, char)
#undef EMU_VECTORS
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

typedef struct CUstream_st* cudaStream_t;
enum cudaError_t { cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorInvalidConfiguration = 9, cudaErrorUnknown = 999 };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };
enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16 };

namespace emu {

inline dim3 block_size, grid_size;
inline cudaError_t last_error = cudaSuccess;
inline std::size_t most_shared = 48 << 10;
inline std::vector<char> dynamic;
inline Block block;
inline std::uint64_t seed = 0;

inline void* dynamic_shared() { return reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(dynamic.data()) + 127) / 128 * 128); }

inline void lay_out(dim3 size) {
  const unsigned count = size.x * size.y * size.z;
  const std::size_t had = block.fibers.size();
  static std::vector<char*> stacks;
  while (stacks.size() < count)
    stacks.push_back(static_cast<char*>(mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)));
  block.fibers.resize(count);
  (void)had;
  for (unsigned k = 0; k < count; ++k) {
    Fiber& fiber = block.fibers[k];
    fiber.stack = stacks[k], fiber.lane = k % 32, fiber.warp = k / 32;
    fiber.thread = {k % size.x, k / size.x % size.y, k / size.x / size.y};
  }
}

struct Launch {
  dim3 grid, threads;
  std::size_t shared;
  Launch(dim3 grid, dim3 threads, std::size_t shared = 0, cudaStream_t = nullptr) : grid(grid), threads(threads), shared(shared) {}

  template <class... P, class... A>
  void run(const char* name, void (*kernel)(P...), A... arguments) const {
    const std::uint64_t count = std::uint64_t(threads.x) * threads.y * threads.z;
    const std::uint64_t blocks = std::uint64_t(grid.x) * grid.y * grid.z;
    if (!count || count > 1024 || !blocks || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 || shared > most_shared) {
      last_error = cudaErrorInvalidConfiguration;
      return;
    }
    kernel_name = name;
    grid_size = grid, block_size = threads;
    lay_out(threads);
    const std::function<void()> call = [&] { kernel(static_cast<P>(arguments)...); };
    body = &call;
    random_state = seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull;
    // Any order of blocks is right, so one is taken that a kernel cannot count on.
    std::uint64_t step = 1;
    if (seed) {
      step = blocks / 2 + seed % 7;
      while (std::__gcd(step, blocks) != 1) ++step;
    }
    for (std::uint64_t k = 0, at = seed ? seed % blocks : 0; k < blocks; ++k, at = (at + step) % blocks) {
      block_index = {unsigned(at % grid.x), unsigned(at / grid.x % grid.y), unsigned(at / grid.x / grid.y)};
      dynamic.assign(shared + 256, char(0x7f));
      block.run(seed != 0);
    }
    body = nullptr;
  }
};

template <class To, class From>
To bits(From from) {
  To to{};
  std::memcpy(&to, &from, sizeof(from) < sizeof(to) ? sizeof(from) : sizeof(to));
  return to;
}
template <class T>
T exchange(unsigned mask, T value, unsigned source) {
  static_assert(sizeof(T) <= 8, "lanes exchange up to eight bytes");
  return bits<T>(collective(EXCHANGE, mask, bits<std::uint64_t>(value), source));
}
template <class T>
__attribute__((noinline)) const T& aligned(const T* p) {
  auto address = reinterpret_cast<std::uintptr_t>(p);
  __asm__("" : "+r"(address));  // the compiler takes alignment for granted otherwise
  if (address % alignof(T)) fail("a misaligned access");
  return *p;
}

}  // namespace emu

inline void __syncthreads() { emu::yield(emu::State::at_barrier); }
inline void __syncwarp(unsigned mask = ~0u) { emu::collective(emu::MEET, mask, 0, 0); }
inline unsigned __ballot_sync(unsigned mask, int what) { return unsigned(emu::collective(emu::BALLOT, mask, what != 0, 0)); }
inline int __any_sync(unsigned mask, int what) { return __ballot_sync(mask, what) != 0; }
inline int __all_sync(unsigned mask, int what) { return __ballot_sync(mask, !what) == 0; }
template <class T>
T __shfl_sync(unsigned mask, T v, int source, int width = 32) {
  const unsigned lane = emu::current->lane;
  return emu::exchange(mask, v, lane / width * width + unsigned(source) % width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int other, int width = 32) {
  const unsigned lane = emu::current->lane, source = lane ^ unsigned(other);
  return emu::exchange(mask, v, source / width == lane / width ? source : lane);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32) {
  const unsigned lane = emu::current->lane;
  return emu::exchange(mask, v, lane % width + by < unsigned(width) ? lane + by : lane);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32) {
  const unsigned lane = emu::current->lane;
  return emu::exchange(mask, v, lane % width >= by ? lane - by : lane);
}
inline void __threadfence() {}

template <class T>
T __ldg(const T* p) { return emu::aligned(p); }
template <class T>
T __ldcs(const T* p) { return emu::aligned(p); }
template <class T>
T __ldcg(const T* p) { return emu::aligned(p); }
template <class T>
T __ldlu(const T* p) { return emu::aligned(p); }
template <class T>
void __stcs(T* p, T v) { emu::aligned(p), *p = v; }
template <class T>
void __stcg(T* p, T v) { emu::aligned(p), *p = v; }

template <class T>
T atomicAdd(T* p, T v) { T old = *p; *p = old + v; return old; }
template <class T>
T atomicMax(T* p, T v) { T old = *p; *p = std::max(old, v); return old; }
template <class T>
T atomicMin(T* p, T v) { T old = *p; *p = std::min(old, v); return old; }
template <class T>
T atomicExch(T* p, T v) { T old = *p; *p = v; return old; }
template <class T>
T atomicCAS(T* p, T expected, T v) { T old = *p; if (old == expected) *p = v; return old; }

using std::isinf;
using std::isnan;
using std::max;
using std::min;
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline int __float2int_rn(float x) { return x == x ? static_cast<int>(std::nearbyint(x)) : 0; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline int __float_as_int(float x) { return emu::bits<int>(x); }
inline float __int_as_float(int x) { return emu::bits<float>(x); }
inline unsigned __float_as_uint(float x) { return emu::bits<unsigned>(x); }
inline float __uint_as_float(unsigned x) { return emu::bits<float>(x); }

inline cudaError_t cudaPeekAtLastError() { return emu::last_error; }
inline cudaError_t cudaGetLastError() { return std::exchange(emu::last_error, cudaSuccess); }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) { return *value = 132, cudaSuccess; }
template <class F>
cudaError_t cudaFuncSetAttribute(F*, cudaFuncAttribute, int bytes) { return emu::most_shared = std::min(bytes, 227 << 10), cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* p, int value, std::size_t bytes, cudaStream_t = nullptr) { return std::memset(p, value, bytes), cudaSuccess; }

#include "host.h"
