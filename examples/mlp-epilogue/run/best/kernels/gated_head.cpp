#include <cmath>
#include <vector>

#include "vector_math.h"

#if defined(__AVX512F__)
constexpr int64_t LANES = 16;
#else
constexpr int64_t LANES = 8;
#endif
typedef float Vec __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

static inline float total(Vec v) {
  float sum = 0.0f;
  for (int64_t i = 0; i < LANES; ++i) sum += v[i];
  return sum;
}

// h = layer norm of silu(gate + bias) * (value + bias): one row of the hidden width, kept in cache.
static void normalised_row(const float* projected, const float* bias, const float* weight, const float* shift, float eps,
                           int64_t hidden, float* h) {
  const float* gate = projected;
  const float* value = projected + hidden;
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < hidden; ++c) {
    const float g = gate[c] + bias[c];
    const float v = g * (value[c] + bias[hidden + c]) / (1.0f + exp_lane(-g));
    h[c] = v;
    sum += v;
  }
  const float mean = sum / hidden;
  float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
  for (int64_t c = 0; c < hidden; ++c) squares += (h[c] - mean) * (h[c] - mean);
  const float inverse = 1.0f / std::sqrt(squares / hidden + eps);
#pragma omp simd
  for (int64_t c = 0; c < hidden; ++c) h[c] = (h[c] - mean) * inverse * weight[c] + shift[c];
}

// out[r][k] = h[r] . head[k] + head_bias[k] for R rows and K columns at once: R * K accumulators stay in registers.
template <int R, int K>
static void product_tile(const float* h, const float* head, const float* head_bias, int64_t hidden, int64_t scores,
                         float* out) {
  Vec sums[R][K] = {};
  for (int64_t c = 0; c < hidden; c += LANES) {
    Vec rows[R];
    for (int r = 0; r < R; ++r) rows[r] = *reinterpret_cast<const Vec*>(h + r * hidden + c);
    for (int k = 0; k < K; ++k) {
      const Vec w = *reinterpret_cast<const Vec*>(head + k * hidden + c);
      for (int r = 0; r < R; ++r) sums[r][k] += rows[r] * w;
    }
  }
  for (int r = 0; r < R; ++r)
    for (int k = 0; k < K; ++k) out[r * scores + k] = total(sums[r][k]) + head_bias[k];
}

// rows and scores are multiples of 4, hidden of the vector's width; all arrays are contiguous.
extern "C" void gated_head(const float* projected, const float* bias, const float* weight, const float* shift, float eps,
                           const float* head, const float* head_bias, float* out, int64_t rows, int64_t hidden,
                           int64_t scores) {
#pragma omp parallel
  {
    std::vector<float> block(4 * hidden);
    float* h = block.data();
#pragma omp for schedule(static)
    for (int64_t row = 0; row < rows; row += 4) {
      for (int64_t r = 0; r < 4; ++r)
        normalised_row(projected + (row + r) * 2 * hidden, bias, weight, shift, eps, hidden, h + r * hidden);
      for (int64_t k = 0; k < scores; k += 4)
        product_tile<4, 4>(h, head + k * hidden, head_bias + k, hidden, scores, out + row * scores + k);
    }
  }
}
