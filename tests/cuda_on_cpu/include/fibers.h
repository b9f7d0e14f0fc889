// Threads of a block as fibers of one OS thread, in an order that a seed decides.
//
// Covers: barriers that not all threads reach, warp exchanges that not all lanes of the mask reach, and, with several seeds, results
// that depend on the order of threads between two barriers (races). Does not cover: races whose result is the same in every order.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

struct uint3 {
  unsigned x, y, z;
};

namespace emu {

constexpr std::size_t STACK = 256 << 10;

enum class State { ready, at_barrier, in_warp, done };

struct Fiber {
  void* sp = nullptr;
  char* stack = nullptr;
  uint3 thread{0, 0, 0};
  unsigned lane = 0, warp = 0;
  State state = State::ready;
  // The collective operation of a warp that the fiber waits in.
  unsigned mask = 0, source = 0, kind = 0;
  std::uint64_t sent = 0, got = 0;
};

inline Fiber* current = nullptr;
inline void* scheduler_sp = nullptr;
inline const std::function<void()>* body = nullptr;
inline std::uint64_t random_state = 0;
inline const char* kernel_name = "";
inline uint3 block_index{0, 0, 0};

[[noreturn]] inline void fail(const char* what) {
  std::fprintf(stderr, "%s in %s, block (%u, %u, %u)", what, kernel_name, block_index.x, block_index.y, block_index.z);
  if (current) std::fprintf(stderr, ", thread (%u, %u, %u)", current->thread.x, current->thread.y, current->thread.z);
  std::fprintf(stderr, "\n");
  std::fflush(stderr);
  _exit(97);
}

inline std::uint64_t random_number() {
  random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
  return random_state;
}

#if defined(__x86_64__)
// Saves the callee-saved registers on the old stack, changes stacks, takes them from the new one.
extern "C" void emu_switch(void** from, void* to);
__asm__(
    ".text\n.weak emu_switch\n.type emu_switch,@function\nemu_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nretq\n");
inline void entry();
inline void* fresh_stack(Fiber& fiber) {
  auto* top = reinterpret_cast<std::uint64_t*>(fiber.stack + STACK) - 1;  // a function begins with its stack at 16 n + 8
  *--top = reinterpret_cast<std::uint64_t>(&entry);
  for (int k = 0; k < 6; ++k) *--top = 0;
  return top;
}
#else
#error "the emulator switches stacks on x86-64 only"
#endif

inline void yield(State state) {
  current->state = state;
  emu_switch(&current->sp, scheduler_sp);
}
inline void entry() {
  (*body)();
  yield(State::done);
  std::abort();
}

enum Collective : unsigned { EXCHANGE, BALLOT, MEET };

// Every lane of `mask` brings a value and gets one: another lane's, or the ballot.
inline std::uint64_t collective(unsigned kind, unsigned mask, std::uint64_t sent, unsigned source) {
  if (!(mask >> current->lane & 1)) fail("a lane calls a warp function whose mask leaves it out");
  current->kind = kind, current->mask = mask, current->sent = sent, current->source = source;
  yield(State::in_warp);
  return current->got;
}

struct Block {
  std::vector<Fiber> fibers;
  std::vector<unsigned> ready;

  void release(unsigned k) {
    fibers[k].state = State::ready;
    ready.push_back(k);
  }

  // Lanes that are not threads of the block, or have ended, may stand in a mask only if they never have to answer.
  void try_warp(Fiber& one) {
    const unsigned first = one.warp * 32;
    std::uint64_t ballot = 0;
    for (unsigned lane = 0; lane < 32; ++lane) {
      if (!(one.mask >> lane & 1)) continue;
      if (first + lane >= fibers.size()) continue;
      const Fiber& other = fibers[first + lane];
      if (other.state == State::done) fail("a warp function waits for a lane that has ended");
      if (other.state != State::in_warp) return;
      if (other.mask != one.mask || other.kind != one.kind) fail("lanes of a warp meet in different calls");
      ballot |= std::uint64_t(other.sent != 0) << lane;
    }
    for (unsigned lane = 0; lane < 32 && first + lane < fibers.size(); ++lane) {
      if (!(one.mask >> lane & 1)) continue;
      Fiber& to = fibers[first + lane];
      if (to.kind == EXCHANGE) {
        const bool there = first + to.source < fibers.size() && (one.mask >> to.source & 1);
        to.got = there ? fibers[first + to.source].sent : 0xdeadbeefdeadbeefull;
      } else {
        to.got = ballot;
      }
      release(first + lane);
    }
  }

  void run(bool shuffled) {
    ready.clear();
    for (unsigned k = fibers.size(); k-- > 0;) {
      fibers[k].sp = fresh_stack(fibers[k]);
      release(k);
    }
    unsigned left = fibers.size();
    while (left) {
      while (!ready.empty()) {
        const std::size_t pick = shuffled ? random_number() % ready.size() : ready.size() - 1;
        const unsigned k = ready[pick];
        ready[pick] = ready.back(), ready.pop_back();
        current = &fibers[k];
        emu_switch(&scheduler_sp, current->sp);
        if (current->state == State::done) --left;
        if (current->state == State::in_warp) try_warp(*current);
      }
      current = nullptr;
      if (!left) return;
      unsigned waiting = 0;
      for (Fiber& fiber : fibers) waiting += fiber.state == State::at_barrier;
      if (waiting != fibers.size()) {
        for (Fiber& fiber : fibers)
          if (fiber.state == State::in_warp) current = &fiber;
        fail(current ? "a warp function waits for a lane that is elsewhere" : "a barrier that not all threads reach");
      }
      for (unsigned k = fibers.size(); k-- > 0;) release(k);
    }
  }
};

}  // namespace emu
