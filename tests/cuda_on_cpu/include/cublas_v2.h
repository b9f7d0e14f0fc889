// The products of cuBLAS that sources use, as plain loops over column-major matrices.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"

typedef struct emuCublas* cublasHandle_t;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_INVALID_VALUE = 7 };
enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };
inline cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(16);
  return CUBLAS_STATUS_SUCCESS;
}
inline cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t) { return CUBLAS_STATUS_SUCCESS; }
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
namespace emu {
template <class T, class R>
cublasStatus_t product(cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k, float alpha, const T* a, long long lda, long long a_step,
                       const T* b, long long ldb, long long b_step, float beta, R* c, long long ldc, long long c_step, int batches) {
  // The conditions that the library itself makes.
  if (m < 0 || n < 0 || k < 0 || lda < std::max(1, a_op ? k : m) || ldb < std::max(1, b_op ? n : k) || ldc < std::max(1, m))
    return CUBLAS_STATUS_INVALID_VALUE;
  for (long long batch = 0; batch < batches; ++batch, a += a_step, b += b_step, c += c_step)
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < m; ++i) {
        double sum = 0;
        for (int p = 0; p < k; ++p) sum += double(float(a[a_op ? p + i * lda : i + p * lda])) * double(float(b[b_op ? j + p * ldb : p + j * ldb]));
        R& to = c[i + j * ldc];
        to = R(float(alpha * sum + (beta != 0.0f ? beta * float(to) : 0.0f)));
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
inline cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t, cublasOperation_t a_op, cublasOperation_t b_op, int m, int n, int k, const void* alpha,
                                                 const void* a, cudaDataType_t a_type, int lda, long long a_step, const void* b, cudaDataType_t b_type,
                                                 int ldb, long long b_step, const void* beta, void* c, cudaDataType_t c_type, int ldc, long long c_step,
                                                 int batches, cublasComputeType_t, cublasGemmAlgo_t) {
  if (a_type != b_type || (c_type != a_type && c_type != CUDA_R_32F)) return CUBLAS_STATUS_INVALID_VALUE;
  const auto of = [&](auto* in, auto* out) {
    return emu::product(a_op, b_op, m, n, k, *static_cast<const float*>(alpha), static_cast<decltype(in)>(a), lda, a_step, static_cast<decltype(in)>(b), ldb,
                        b_step, *static_cast<const float*>(beta), static_cast<decltype(out)>(c), ldc, c_step, batches);
  };
  if (a_type == CUDA_R_16F) {
    return c_type == a_type ? of(static_cast<const __half*>(nullptr), static_cast<__half*>(nullptr))
                            : of(static_cast<const __half*>(nullptr), static_cast<float*>(nullptr));
  }
  if (a_type == CUDA_R_16BF) {
    return c_type == a_type ? of(static_cast<const __nv_bfloat16*>(nullptr), static_cast<__nv_bfloat16*>(nullptr))
                            : of(static_cast<const __nv_bfloat16*>(nullptr), static_cast<float*>(nullptr));
  }
  return of(static_cast<const float*>(nullptr), static_cast<float*>(nullptr));
}
