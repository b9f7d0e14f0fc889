#include <cuda_runtime.h>
// waits until the last element of x differs from its poison/zero value, at most ~1 s
__global__ void wait_for(const float* last, float old) {
  long long t0 = clock64();
  while (*((volatile const float*)last) == old && clock64() - t0 < 2000000000LL) {}
  t0 = clock64();
  while (clock64() - t0 < 400000LL) {}
}
extern "C" void launch_wait(const float* last, cudaStream_t s) { wait_for<<<1, 1, 0, s>>>(last, 0.f); }
