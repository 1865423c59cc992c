#include "eval/sandbox_filter.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace winnow::eval {
namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr std::uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
constexpr std::uint32_t kArchitecture = 0;
#endif

// Reading, calculating, its own memory, its own signals, clocks, and exiting.
constexpr std::array kAllowed {
  __NR_read, __NR_readv, __NR_pread64, __NR_write, __NR_writev, __NR_close, __NR_lseek, __NR_fstat,
      __NR_newfstatat, __NR_statx, __NR_readlinkat, __NR_faccessat, __NR_faccessat2,
      __NR_getdents64, __NR_getcwd, __NR_dup, __NR_dup3, __NR_fcntl, __NR_fstatfs, __NR_ppoll,
      __NR_pselect6, __NR_brk, __NR_mmap, __NR_munmap, __NR_mremap, __NR_mprotect, __NR_madvise,
      __NR_rt_sigaction, __NR_rt_sigprocmask, __NR_rt_sigreturn, __NR_sigaltstack, __NR_futex,
      __NR_set_tid_address, __NR_set_robust_list, __NR_rseq, __NR_getrandom, __NR_clock_gettime,
      __NR_clock_getres, __NR_clock_nanosleep, __NR_nanosleep, __NR_gettimeofday, __NR_times,
      __NR_getrusage, __NR_sched_getaffinity, __NR_sched_yield, __NR_getpid, __NR_gettid,
      __NR_getppid, __NR_getuid, __NR_geteuid, __NR_getgid, __NR_getegid, __NR_getresuid,
      __NR_getresgid, __NR_uname, __NR_sysinfo, __NR_exit, __NR_exit_group, __NR_restart_syscall,
      __NR_execve,  // of the sandboxed program, under the same filter
#if defined(__x86_64__)
      __NR_stat, __NR_lstat, __NR_access, __NR_readlink, __NR_poll, __NR_select, __NR_dup2,
      __NR_arch_prctl, __NR_time, __NR_getrlimit,
#endif
};

constexpr std::uint32_t kWrites =
    O_ACCMODE | O_CREAT | O_TRUNC | O_APPEND | (O_TMPFILE & ~O_DIRECTORY);

constexpr std::uint32_t offset_of_argument(int index) {
  return static_cast<std::uint32_t>(offsetof(seccomp_data, args)) +
         static_cast<std::uint32_t>(index) * 8;  // the low half: both are little-endian
}

class Filter {
 public:
  void load(std::uint32_t offset) { add(BPF_LD | BPF_W | BPF_ABS, offset); }
  void allow() { add(BPF_RET | BPF_K, SECCOMP_RET_ALLOW); }
  void refuse(int error) {
    add(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<std::uint32_t>(error));
  }
  void kill() { add(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS); }
  /// Continues with the next instruction if the loaded word is `value`, else skips `count`.
  void unless_equal_skip(std::uint32_t value, std::uint8_t count) {
    add(BPF_JMP | BPF_JEQ | BPF_K, value, 0, count);
  }
  /// Skips `count` if the loaded word has any of `bits`.
  void if_any_bit_skip(std::uint32_t bits, std::uint8_t count) {
    add(BPF_JMP | BPF_JSET | BPF_K, bits, count, 0);
  }
  std::vector<sock_filter> take() { return std::move(program_); }

 private:
  void add(int code, std::uint32_t k, std::uint8_t yes = 0, std::uint8_t no = 0) {
    program_.push_back({static_cast<std::uint16_t>(code), yes, no, k});
  }
  std::vector<sock_filter> program_;
};

// Allows `call` to open files for reading only; argument `flags` has the mode.
void allow_reading(Filter& filter, std::uint32_t call, int flags) {
  filter.unless_equal_skip(call, 4);
  filter.load(offset_of_argument(flags));
  filter.if_any_bit_skip(kWrites, 1);
  filter.allow();
  filter.refuse(EPERM);
}

// Allows `call` only if the given argument is 0.
void allow_with_zero(Filter& filter, std::uint32_t call, int argument) {
  filter.unless_equal_skip(call, 6);
  filter.load(offset_of_argument(argument));
  filter.unless_equal_skip(0, 3);
  filter.load(offset_of_argument(argument) + 4);
  filter.unless_equal_skip(0, 1);
  filter.allow();
  filter.refuse(EPERM);
}

}  // namespace

std::vector<sock_filter> sandbox_filter() {
  if (kArchitecture == 0) {
    return {};
  }
  Filter filter;
  filter.load(offsetof(seccomp_data, arch));
  filter.unless_equal_skip(kArchitecture, 1);
  filter.unless_equal_skip(kArchitecture + 1, 1);  // never taken: continues with the calls
  filter.kill();
  filter.load(offsetof(seccomp_data, nr));
  for (const auto call : kAllowed) {
    filter.unless_equal_skip(static_cast<std::uint32_t>(call), 1);
    filter.allow();
  }
  // Programs ask whether their output is a terminal: it is not.
  filter.unless_equal_skip(__NR_ioctl, 1);
  filter.refuse(ENOTTY);
  // If clone3() is unknown, the C library falls back to clone(), which is refused.
  filter.unless_equal_skip(__NR_clone3, 1);
  filter.refuse(ENOSYS);
  allow_reading(filter, __NR_openat, 2);
#if defined(__x86_64__)
  allow_reading(filter, __NR_open, 1);
#endif
  allow_with_zero(filter, __NR_prlimit64, 2);  // reading limits, not setting them
  filter.refuse(EPERM);
  return filter.take();
}

}  // namespace winnow::eval
