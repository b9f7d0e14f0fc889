// The module itself: runs every function that the kernel sources registered. The judge brings this file; a submission has none.
#include "binding_registry.h"
#include "launcher.h"

#if defined(AGENT_TARGET_CUDA)
#include <cuda_runtime_api.h>
#if __has_include(<c10/cuda/impl/cuda_cmake_macros.h>)
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#define AGENT_HAS_STREAMS 1
#endif
#endif

#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace {

using launcher::Element;
using launcher::Kind;
using launcher::Launcher;
using launcher::Parameter;
using launcher::Value;

constexpr std::size_t most_parameters = 64;

// What is wrong with a call; becomes a TypeError or an OverflowError in Python.
struct BadArgument {
  PyObject* type;
  std::string text;
};

const char* element_name(Element element) {
  static const char* const names[] = {"any", "float32", "float64", "float16", "bfloat16", "bool", "uint8", "int8", "int16", "int32", "int64"};
  return names[static_cast<std::size_t>(element)];
}

std::optional<at::ScalarType> scalar_type(Element element) {
  switch (element) {
    case Element::f32: return at::kFloat;
    case Element::f64: return at::kDouble;
    case Element::f16: return at::kHalf;
    case Element::bf16: return at::kBFloat16;
    case Element::boolean: return at::kBool;
    case Element::u8: return at::kByte;
    case Element::i8: return at::kChar;
    case Element::i16: return at::kShort;
    case Element::i32: return at::kInt;
    case Element::i64: return at::kLong;
    default: return std::nullopt;
  }
}

// Which argument is meant; put into words only where something is wrong with it.
struct Place {
  const Launcher& entry;
  std::size_t number;
  std::string operator+(const std::string& text) const { return std::string(entry.name) + ": argument " + std::to_string(number + 1) + text; }
};

void* pointer_of(PyObject* argument, const Parameter& wanted, const Place& where, std::optional<at::Device>& device) {
  if (argument == Py_None) return nullptr;
  if (!THPVariable_Check(argument)) throw BadArgument{PyExc_TypeError, where + " must be a tensor or None"};
  const at::Tensor& tensor = THPVariable_Unpack(argument);
  const auto dtype = scalar_type(wanted.element);
  if (dtype && tensor.scalar_type() != *dtype)
    throw BadArgument{PyExc_TypeError, where + std::string(" must be a ") + element_name(wanted.element) + " tensor, not " + c10::toString(tensor.scalar_type())};
#if defined(AGENT_TARGET_CUDA)
  if (!tensor.is_cuda()) throw BadArgument{PyExc_TypeError, where + " is a tensor on " + tensor.device().str() + ", not on the GPU"};
#else
  if (!tensor.is_cpu()) throw BadArgument{PyExc_TypeError, where + " is a tensor on " + tensor.device().str() + ", not on the CPU"};
#endif
  if (device && *device != tensor.device()) throw BadArgument{PyExc_TypeError, where + " is on another device than the arguments before it"};
  device = tensor.device();
  return wanted.written ? tensor.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr());
}

std::int64_t integer_of(PyObject* argument, const Parameter& wanted, const Place& where) {
  int overflow = 0;
  const long long value = PyLong_AsLongLongAndOverflow(argument, &overflow);
  if (value == -1 && PyErr_Occurred()) {
    PyErr_Clear();
    throw BadArgument{PyExc_TypeError, where + " must be an integer"};
  }
  const int bits = 8 * wanted.bytes;
  bool fits = overflow == 0;
  if (fits && bits < 64) {
    const long long low = wanted.is_signed ? -(1LL << (bits - 1)) : 0;
    const long long high = (1LL << (wanted.is_signed ? bits - 1 : bits)) - 1;
    fits = low <= value && value <= high;
  }
  if (!fits) throw BadArgument{PyExc_OverflowError, where + " does not fit into " + std::to_string(bits) + " bits; let the parameter be int64_t"};
  return value;
}

double real_of(PyObject* argument, const Place& where) {
  const double value = PyFloat_AsDouble(argument);
  if (value == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    throw BadArgument{PyExc_TypeError, where + " must be a number"};
  }
  return value;
}

void* stream_of(const std::optional<at::Device>& device) {
#if defined(AGENT_HAS_STREAMS)
  return c10::cuda::getCurrentCUDAStream(device ? device->index() : -1).stream();
#else
  (void)device;
  return nullptr;
#endif
}

void check_result(const Launcher& entry, int code) {
#if defined(AGENT_TARGET_CUDA)
  // A launch with a bad configuration fails silently otherwise; errors while a kernel runs come up at the next synchronisation.
  const cudaError_t error = code != 0 ? static_cast<cudaError_t>(code) : cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(std::string(entry.name) + ": " + cudaGetErrorName(error) + ": " + cudaGetErrorString(error));
#else
  if (code != 0) throw std::runtime_error(std::string(entry.name) + ": error code " + std::to_string(code));
#endif
}

void launch(const Launcher& entry, PyObject* const* arguments, std::size_t given) {
  Value values[most_parameters];
  std::optional<at::Device> device;
  std::size_t at = 0;
  for (std::size_t index = 0; index < entry.count; ++index) {
    const Parameter& wanted = entry.parameters[index];
    if (wanted.kind == Kind::stream) continue;
    if (at == given) throw BadArgument{PyExc_TypeError, std::string(entry.name) + ": too few arguments: " + std::to_string(given)};
    const std::size_t number = at++;
    if (wanted.kind == Kind::pointer) {
      values[index].pointer = pointer_of(arguments[number], wanted, Place{entry, number}, device);
    } else if (wanted.kind == Kind::integer) {
      values[index].integer = integer_of(arguments[number], wanted, Place{entry, number});
    } else {
      values[index].real = real_of(arguments[number], Place{entry, number});
    }
  }
  if (at != given) throw BadArgument{PyExc_TypeError, std::string(entry.name) + ": takes " + std::to_string(at) + " arguments, " + std::to_string(given) + " were given"};
#if defined(AGENT_HAS_STREAMS)
  const c10::cuda::OptionalCUDAGuard guard(device);
#endif
  for (std::size_t index = 0; index < entry.count; ++index)
    if (entry.parameters[index].kind == Kind::stream) values[index].pointer = stream_of(device);
  check_result(entry, entry.call(values));
}

PyObject* called(PyObject* capsule, PyObject* const* arguments, Py_ssize_t given) {
  const auto* entry = static_cast<const Launcher*>(PyCapsule_GetPointer(capsule, nullptr));
  if (entry == nullptr) return nullptr;
  try {
    launch(*entry, arguments, static_cast<std::size_t>(given));
  } catch (const BadArgument& bad) {
    PyErr_SetString(bad.type, bad.text.c_str());
    return nullptr;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
    return nullptr;
  }
  Py_RETURN_NONE;
}

void add_launcher(pybind11::module& module, const Launcher& entry) {
  if (entry.count > most_parameters) throw std::runtime_error(std::string(entry.name) + " has more than 64 parameters");
  // Lives as long as the function, which lives as long as the process.
  auto* method = new PyMethodDef{entry.name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&called)), METH_FASTCALL, nullptr};
  pybind11::capsule self(&entry);
  module.attr(entry.name) = pybind11::reinterpret_steal<pybind11::object>(PyCFunction_New(method, self.ptr()));
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  for (const auto& entry : binding_registry::entries()) entry.fn(m);
  for (const Launcher* entry = launcher::first(); entry != nullptr; entry = entry->next) add_launcher(m, *entry);
}
