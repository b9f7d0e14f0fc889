// The products of cuBLAS that sources use, as plain loops over column-major matrices.
#pragma once

#include "cuda_runtime.h"

typedef struct emuCublas* cublasHandle_t;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(16);
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t) { return CUBLAS_STATUS_SUCCESS; }
namespace emu {
template <class T>
cublasStatus_t product(cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k, float alpha, const T* a, long long lda, long long a_step,
                       const T* b, long long ldb, long long b_step, float beta, T* c, long long ldc, long long c_step, int batches) {
  // The conditions that the library itself makes.
  if (m < 0 || n < 0 || k < 0 || lda < std::max(1, a_op ? k : m) || ldb < std::max(1, b_op ? n : k) || ldc < std::max(1, m))
    return CUBLAS_STATUS_INVALID_VALUE;
  for (long long batch = 0; batch < batches; ++batch, a += a_step, b += b_step, c += c_step)
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < m; ++i) {
        double sum = 0;
        for (int p = 0; p < k; ++p) sum += double(float(a[a_op ? p + i * lda : i + p * lda])) * double(float(b[b_op ? j + p * ldb : p + j * ldb]));
        T& to = c[i + j * ldc];
        to = T(float(alpha * sum + (beta != 0.0f ? beta * float(to) : 0.0f)));
      }
  return CUBLAS_STATUS_SUCCESS;
}
}  // namespace emu
inline cublasStatus_t cublasSgemm(cublasHandle_t, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k, const float* alpha, const float* a,
                                  int lda, const float* b, int ldb, const float* beta, float* c, int ldc) {
  return emu::product(a_op, b_op, m, n, k, *alpha, a, lda, 0, b, ldb, 0, *beta, c, ldc, 0, 1);
}
inline cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k, const float* alpha,
                                                const float* a, int lda, long long a_step, const float* b, int ldb, long long b_step, const float* beta,
                                                float* c, int ldc, long long c_step, int batches) {
  return emu::product(a_op, b_op, m, n, k, *alpha, a, lda, a_step, b, ldb, b_step, *beta, c, ldc, c_step, batches);
}
