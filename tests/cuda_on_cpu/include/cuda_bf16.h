// bfloat16: the upper half of a float, rounded to nearest even.
#pragma once
#include "cuda_runtime.h"
struct __nv_bfloat16 {
  unsigned short raw;
  __nv_bfloat16() = default;
  __nv_bfloat16(float v) {
    const unsigned b = emu::bits<unsigned>(v);
    raw = v != v ? 0x7fc0 : static_cast<unsigned short>((b + 0x7fff + (b >> 16 & 1)) >> 16);
  }
  operator float() const { return emu::bits<float>(unsigned(raw) << 16); }
};
struct alignas(4) __nv_bfloat162 { __nv_bfloat16 x, y; };
typedef __nv_bfloat16 nv_bfloat16;
inline float __bfloat162float(__nv_bfloat16 h) { return h; }
inline __nv_bfloat16 __float2bfloat16(float v) { return v; }
inline __nv_bfloat16 __float2bfloat16_rn(float v) { return v; }
