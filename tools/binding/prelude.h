// What every source that speaks to torch begins with; precompiled where a warmed cache is at hand.
#pragma once

#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>
