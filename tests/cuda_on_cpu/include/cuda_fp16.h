// IEEE half precision: a value of 16 bits that is computed with as float.
#pragma once
#include "cuda_runtime.h"
struct __half {
  unsigned short raw;
  __half() = default;
  __half(float v) { const _Float16 h = static_cast<_Float16>(v); std::memcpy(&raw, &h, 2); }
  operator float() const { _Float16 h; std::memcpy(&h, &raw, 2); return static_cast<float>(h); }
};
struct alignas(4) __half2 { __half x, y; };
typedef __half half;
typedef __half2 half2;
inline float __half2float(__half h) { return h; }
inline __half __float2half(float v) { return v; }
inline __half __float2half_rn(float v) { return v; }
