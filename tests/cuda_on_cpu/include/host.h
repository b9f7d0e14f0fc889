// What the test calls: memory with a forbidden page on both sides, and launchers by name in a child process.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

namespace emu {

inline std::size_t page() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

inline void on_fault(int, siginfo_t* info, void*) {
  std::fprintf(stderr, "address %p: ", info->si_addr);
  fail("an access outside of every tensor, or a write to an input,");
}
inline void on_alarm(int) { fail("no end"); }

}  // namespace emu

// Shared with children. `at_end`: the last byte touches the page that must not be touched, as far as an alignment of 16 lets it;
// else the first byte does.
extern "C" __attribute__((visibility("default"), weak)) void* emu_memory(std::size_t bytes, int at_end) {
  const std::size_t page = emu::page(), room = (bytes + page - 1) / page * page + page * (bytes == 0);
  char* all = static_cast<char*>(mmap(nullptr, room + 2 * page, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (all == MAP_FAILED || mprotect(all + page, room, PROT_READ | PROT_WRITE)) return nullptr;
  std::memset(all + page, 0xff, room);  // NaN to who reads it
  return all + page + (at_end ? (room - bytes) / 16 * 16 : 0);
}
extern "C" __attribute__((visibility("default"), weak)) void emu_free(void* p, std::size_t bytes) {
  const std::size_t page = emu::page(), room = (bytes + page - 1) / page * page + page * (bytes == 0);
  munmap(reinterpret_cast<void*>((reinterpret_cast<std::uintptr_t>(p) / page - 1) * page), room + 2 * page);
}

// Runs a launcher as the module's binding would: the values in the order of its parameters, a null stream among them. 0, its error code,
// or 97 and a line in `said` where the emulator has found fault. Inputs (const pointers) are write-protected: `sizes` are bytes behind pointers.
extern "C" __attribute__((visibility("default"), weak)) int emu_call(const char* name, launcher::Value* values, const std::size_t* sizes, std::size_t count,
                                                                      std::uint64_t seed, char* said, std::size_t room) {
  const launcher::Launcher* entry = launcher::first();
  while (entry && std::strcmp(entry->name, name)) entry = entry->next;
  if (!entry || entry->count != count) return std::snprintf(said, room, "no launcher %s of %zu parameters", name, count), 96;
  int ends[2];
  if (pipe(ends)) return 95;
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], 2);
    stack_t own{};
    own.ss_sp = std::malloc(1 << 16), own.ss_size = 1 << 16;
    sigaltstack(&own, nullptr);
    struct sigaction action {};
    action.sa_sigaction = emu::on_fault, action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE}) sigaction(signal, &action, nullptr);
    signal(SIGALRM, emu::on_alarm);
    alarm(120);
    const std::size_t page = emu::page();
    for (std::size_t k = 0; k < count; ++k) {
      const launcher::Parameter& parameter = entry->parameters[k];
      if (parameter.kind != launcher::Kind::pointer || parameter.written) continue;
      const auto first_page = reinterpret_cast<std::uintptr_t>(values[k].pointer) / page * page;
      mprotect(reinterpret_cast<void*>(first_page), (sizes[k] + page - 1) / page * page, PROT_READ);
    }
    emu::seed = seed;
    _exit(entry->call(values));
  }
  close(ends[1]);
  std::size_t got = 0;
  for (ssize_t n; got + 1 < room && (n = read(ends[0], said + got, room - 1 - got)) > 0;) got += std::size_t(n);
  said[got] = 0;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
// "pointer, const float32"-like: kind * 1000 + element * 10 + written, or -1 past the end.
extern "C" __attribute__((visibility("default"), weak)) int emu_parameter(const char* name, std::size_t k) {
  const launcher::Launcher* entry = launcher::first();
  while (entry && std::strcmp(entry->name, name)) entry = entry->next;
  if (!entry || k >= entry->count) return -1;
  const launcher::Parameter& p = entry->parameters[k];
  return int(p.kind) * 1000 + int(p.element) * 10 + int(p.written);
}
