// How a kernel source offers a function to Python: REGISTER_BINDING(name, register_fn) at file scope, where register_fn takes the module.
#pragma once

#include <torch/types.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>
#include <vector>

namespace binding_registry {

using RegisterFn = void (*)(pybind11::module&);

struct Entry {
  const char* name;
  RegisterFn fn;
};

// A function-local static, so that it exists before any registrar, whatever the order of translation units.
inline std::vector<Entry>& entries() {
  static std::vector<Entry> all;
  return all;
}

struct Registrar {
  Registrar(const char* name, RegisterFn fn) { entries().push_back({name, fn}); }
};

}  // namespace binding_registry

// The external symbol makes the linker refuse one name registered by two sources.
#define REGISTER_BINDING(name, register_fn)                            \
  extern "C" __attribute__((visibility("default"), used)) const char agent_binding_##name = 1; \
  static const ::binding_registry::Registrar agent_registrar_##name(#name, register_fn)
