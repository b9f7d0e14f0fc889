// The module itself: runs every function that the kernel sources registered. The judge brings this file; a submission has none.
#include "binding_registry.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  for (const auto& entry : binding_registry::entries()) entry.fn(m);
}
