// Stands before torch's own torch/extension.h: tensors and pybind without torch::nn, optimisers and data loaders, which kernels
// do not need and which cost ten seconds a source. A source that does need them includes <torch/all.h> itself.
#pragma once

#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>
