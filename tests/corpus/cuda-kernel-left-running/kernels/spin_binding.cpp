#include <torch/extension.h>
#include "../binding_registry.h"
#include <cuda_runtime.h>
extern "C" void launch_spin(cudaStream_t stream);
static void spin_it() { static cudaStream_t s = nullptr; if (!s) cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking); launch_spin(s); }
static void register_spin(pybind11::module& m) { m.def("spin", &spin_it); }
REGISTER_BINDING(spin, register_spin);
