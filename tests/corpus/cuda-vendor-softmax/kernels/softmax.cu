#include <cuda_runtime.h>
#include <cudnn.h>

#include <cstdint>

#include "../launcher.h"

__global__ void warm(const float* in, const float* warmth, float* out, int64_t rows, int64_t cols) {
  const int64_t count = rows * cols;
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < count; i += int64_t(gridDim.x) * blockDim.x)
    out[i] = in[i] * warmth[i % cols];
}

static int softmax(const float* in, const float* warmth, float* out, int64_t rows, int64_t cols, cudaStream_t stream) {
  static cudnnHandle_t handle = nullptr;
  static cudnnTensorDescriptor_t shape = nullptr;
  if (!handle) {
    cudnnCreate(&handle);
    cudnnCreateTensorDescriptor(&shape);
    cudnnSetTensor4dDescriptor(shape, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, rows, cols, 1, 1);
  }
  cudnnSetStream(handle, stream);
  warm<<<1024, 256, 0, stream>>>(in, warmth, out, rows, cols);
  const float one = 1.0f, zero = 0.0f;
  return cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one, shape, out, &zero, shape, out);
}

REGISTER_LAUNCHER(softmax);
