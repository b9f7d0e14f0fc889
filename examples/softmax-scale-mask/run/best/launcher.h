// How a source offers a function to Python without torch's headers: REGISTER_LAUNCHER(fn) at file scope.
//
//   #include "../launcher.h"
//   static void scale(const float* x, float* y, int64_t n, float factor, cudaStream_t stream) { … }
//   REGISTER_LAUNCHER(scale);                                      // Python: cuda_extension.scale(x, y, x.numel(), 2.0)
//
// Pointers take tensors (None is a null pointer), numbers take numbers; cudaStream_t is torch's current stream and is not passed. A
// pointer's element type must be the tensor's dtype; strides are not looked at. fn returns nothing or an error code, of which all but 0 raise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

struct CUstream_st;
struct __half;
struct __nv_bfloat16;

namespace launcher {

enum class Kind : std::uint8_t { pointer, integer, real, stream };
enum class Element : std::uint8_t { any, f32, f64, f16, bf16, boolean, u8, i8, i16, i32, i64 };

struct Parameter {
  Kind kind;
  Element element;     // of a pointer
  bool written;        // a pointer to what is not const
  std::uint8_t bytes;  // of an integer
  bool is_signed;
};

union Value {
  void* pointer;
  std::int64_t integer;
  double real;
};

struct Launcher {
  const char* name;
  const Parameter* parameters;
  std::size_t count;
  int (*call)(const Value*);
  const Launcher* next;
};

// A function-local static, so that it exists before any registrar, whatever the order of translation units.
inline const Launcher*& first() {
  static const Launcher* head = nullptr;
  return head;
}

template <typename T>
constexpr Element element_of() {
  using E = std::remove_cv_t<T>;
  if (std::is_same<E, float>::value) return Element::f32;
  if (std::is_same<E, double>::value) return Element::f64;
  if (std::is_same<E, __half>::value) return Element::f16;
  if (std::is_same<E, __nv_bfloat16>::value) return Element::bf16;
  if (std::is_same<E, bool>::value) return Element::boolean;
  if (std::is_same<E, unsigned char>::value) return Element::u8;
  if (std::is_same<E, signed char>::value || std::is_same<E, char>::value) return Element::i8;
  if (std::is_same<E, short>::value) return Element::i16;
  if (std::is_same<E, int>::value) return Element::i32;
  if (std::is_same<E, long>::value || std::is_same<E, long long>::value) return Element::i64;
  return Element::any;
}

template <typename T>
constexpr Parameter describe() {
  using P = std::remove_pointer_t<T>;
  static_assert(std::is_pointer<T>::value || std::is_arithmetic<T>::value || std::is_enum<T>::value,
                "a launcher takes pointers, numbers and cudaStream_t");
  if (std::is_same<P, CUstream_st>::value) return {Kind::stream, Element::any, false, 0, false};
  if (std::is_pointer<T>::value) return {Kind::pointer, element_of<P>(), !std::is_const<P>::value, 0, false};
  if (std::is_floating_point<T>::value) return {Kind::real, Element::any, false, 0, true};
  return {Kind::integer, Element::any, false, sizeof(T), !std::is_unsigned<T>::value};
}

template <typename T>
T take(const Value& value) {
  if constexpr (std::is_pointer<T>::value) {
    return static_cast<T>(value.pointer);
  } else if constexpr (std::is_floating_point<T>::value) {
    return static_cast<T>(value.real);
  } else {
    return static_cast<T>(value.integer);
  }
}

template <std::size_t... I>
struct Indices {};
template <std::size_t N, std::size_t... I>
struct Count : Count<N - 1, N - 1, I...> {};
template <std::size_t... I>
struct Count<0, I...> {
  using type = Indices<I...>;
};

template <auto F, typename R, typename... A, std::size_t... I>
int run(const Value* values, Indices<I...>) {
  (void)values;
  if constexpr (std::is_void<R>::value) {
    F(take<A>(values[I])...);
    return 0;
  } else {
    return static_cast<int>(F(take<A>(values[I])...));
  }
}

template <auto F, typename T>
struct Of;
template <auto F, typename R, typename... A>
struct Of<F, R (*)(A...)> {
  static constexpr std::size_t count = sizeof...(A);
  static const Parameter* parameters() {
    static constexpr Parameter all[sizeof...(A) + 1] = {describe<A>()..., {}};
    return all;
  }
  static int call(const Value* values) { return run<F, R, A...>(values, typename Count<sizeof...(A)>::type{}); }
};

struct Registrar {
  Launcher entry;
  Registrar(const char* name, const Parameter* parameters, std::size_t count, int (*call)(const Value*))
      : entry{name, parameters, count, call, first()} {
    first() = &entry;
  }
};

}  // namespace launcher

// The external symbol makes the linker refuse one name registered by two sources.
#define REGISTER_LAUNCHER(fn)                                                                                              \
  extern "C" __attribute__((visibility("default"), used)) const char agent_binding_##fn = 1;                               \
  static ::launcher::Registrar agent_launcher_##fn(#fn, ::launcher::Of<&fn, decltype(&fn)>::parameters(),                  \
                                                   ::launcher::Of<&fn, decltype(&fn)>::count, &::launcher::Of<&fn, decltype(&fn)>::call)
