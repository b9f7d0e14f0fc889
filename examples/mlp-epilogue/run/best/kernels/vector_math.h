// exp for a vectorised loop, within two units in the last place; inputs are clamped, so that the result is finite and normal.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#pragma GCC target("prefer-vector-width=512")
#endif

static inline float exp_lane(float x) {
  x = x < -87.0f ? -87.0f : x;
  x = x > 88.0f ? 88.0f : x;
  // n = round(x / ln 2) by adding and removing 1.5 * 2^23; the bits of the sum hold n as an integer.
  const float shifted = x * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  // ln 2 in two parts keeps r exact: |r| <= ln 2 / 2.
  float r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  int32_t bits, scale;
  std::memcpy(&bits, &shifted, 4);
  scale = (bits + 127) << 23;  // the upper bits of `bits` fall out
  float power;
  std::memcpy(&power, &scale, 4);
  return p * power;
}
