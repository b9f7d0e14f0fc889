#include <vector>

#include "vector_math.h"

// out[h, q, :] = softmax(scores[h, q, :] * scale + slope[h] * mask[q, :]), all contiguous.
extern "C" void masked_softmax(const float* scores, const float* mask, const float* slope, float scale, float* out,
                               int64_t heads, int64_t queries, int64_t keys) {
#pragma omp parallel
  {
    std::vector<float> row(keys);  // stays in the first-level cache, so that the output is written once
    float* t = row.data();
#pragma omp for schedule(static)
    for (int64_t index = 0; index < heads * queries; ++index) {
      const float* s = scores + index * keys;
      const float* m = mask + index % queries * keys;
      const float k = slope[index / queries];
      float* o = out + index * keys;
      float top = -3.4e38f;
#pragma omp simd reduction(max : top)
      for (int64_t c = 0; c < keys; ++c) {
        const float v = s[c] * scale + k * m[c];
        t[c] = v;
        top = v > top ? v : top;
      }
      float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
      for (int64_t c = 0; c < keys; ++c) {
        const float e = exp_lane(t[c] - top);
        t[c] = e;
        sum += e;
      }
      const float inverse = 1.0f / sum;
#pragma omp simd
      for (int64_t c = 0; c < keys; ++c) o[c] = t[c] * inverse;
    }
  }
}
