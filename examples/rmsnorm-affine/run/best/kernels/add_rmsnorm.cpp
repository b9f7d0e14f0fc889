#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#if defined(__AVX__)
#include <immintrin.h>
#endif
#if defined(__AVX512F__)
#pragma GCC target("prefer-vector-width=512")
#endif

// Writes around the cache: the line is not read first, and the inputs stay where they are. Falls back to a plain copy.
static inline void stream_row(float* to, const float* from, int64_t width) {
#if defined(__AVX512F__)
  if (reinterpret_cast<uintptr_t>(to) % 64 == 0 && width % 16 == 0) {
    for (int64_t c = 0; c < width; c += 16) _mm512_stream_ps(to + c, _mm512_loadu_ps(from + c));
    return;
  }
#elif defined(__AVX__)
  if (reinterpret_cast<uintptr_t>(to) % 32 == 0 && width % 8 == 0) {
    for (int64_t c = 0; c < width; c += 8) _mm256_stream_ps(to + c, _mm256_loadu_ps(from + c));
    return;
  }
#endif
  std::memcpy(to, from, width * sizeof(float));
}

// sum = x + residual; out = sum / rms(sum) * weight + bias, rows x width, all contiguous.
extern "C" void add_rmsnorm(const float* x, const float* residual, const float* weight, const float* bias, float eps,
                            float* out, float* sum, int64_t rows, int64_t width) {
#pragma omp parallel
  {
    std::vector<float> row(2 * width);
    float* h = row.data();
    float* y = h + width;
#pragma omp for schedule(static)
    for (int64_t index = 0; index < rows; ++index) {
      const float* a = x + index * width;
      const float* r = residual + index * width;
      float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
      for (int64_t c = 0; c < width; ++c) {
        const float v = a[c] + r[c];
        h[c] = v;
        squares += v * v;
      }
      const float inverse = 1.0f / std::sqrt(squares / width + eps);
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) y[c] = h[c] * inverse * weight[c] + bias[c];
      stream_row(sum + index * width, h, width);
      stream_row(out + index * width, y, width);
    }
#if defined(__AVX__)
    _mm_sfence();  // streamed lines are visible before the parallel region ends
#endif
  }
}
