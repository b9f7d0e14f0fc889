#include <cuda_runtime.h>
__global__ void spin(long long ns) { long long t0 = clock64(); while (clock64() - t0 < ns * 2) {} }
extern "C" void launch_spin(cudaStream_t s) { spin<<<1, 32, 0, s>>>(2000000000LL); }
