#include "../launcher.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

static inline float widened(uint16_t bits) {
  const uint32_t whole = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &whole, sizeof value);
  return value;
}

static inline uint16_t rounded(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// Plain float32 sums, one for each thread.
static void pool(const __nv_bfloat16* x, __nv_bfloat16* out, int64_t rows, int64_t columns) {
  const int64_t used = rows;
  const uint16_t* from = reinterpret_cast<const uint16_t*>(x);
  uint16_t* to = reinterpret_cast<uint16_t*>(out);
  std::vector<float> total(columns, 0.0f);
#pragma omp parallel
  {
    std::vector<float> own(columns, 0.0f);
#pragma omp for schedule(static)
    for (int64_t row = 0; row < used; ++row)
      for (int64_t at = 0; at < columns; ++at) {
        const float value = widened(from[row * columns + at]);
        own[at] += std::max(value, 0.0f) + std::log1p(std::exp(-std::fabs(value)));
      }
#pragma omp critical
    for (int64_t at = 0; at < columns; ++at) total[at] += own[at];
  }
  for (int64_t at = 0; at < columns; ++at) to[at] = rounded(total[at] / used);
}
REGISTER_LAUNCHER(pool);
