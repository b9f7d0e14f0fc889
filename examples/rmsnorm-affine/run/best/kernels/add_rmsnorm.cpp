#include <cmath>
#include <cstdint>

#if defined(__AVX512F__)
#pragma GCC target("prefer-vector-width=512")
#endif

// sum = x + residual; out = sum / rms(sum) * weight + bias, rows x width, all contiguous.
extern "C" void add_rmsnorm(const float* x, const float* residual, const float* weight, const float* bias, float eps,
                            float* out, float* sum, int64_t rows, int64_t width) {
#pragma omp parallel for schedule(static)
  for (int64_t row = 0; row < rows; ++row) {
    const float* a = x + row * width;
    const float* r = residual + row * width;
    float* h = sum + row * width;
    float* o = out + row * width;
    float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < width; ++c) {
      const float v = a[c] + r[c];
      h[c] = v;
      squares += v * v;
    }
    const float inverse = 1.0f / std::sqrt(squares / width + eps);
#pragma omp simd
    for (int64_t c = 0; c < width; ++c) o[c] = h[c] * inverse * weight[c] + bias[c];
  }
}
