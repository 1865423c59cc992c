// The one error style of winnow: exceptions of type Error.
//
// An Error is something the user can mend (a bad file, a bad flag, too little memory); its message
// is one line that names what is wrong, where, and what was expected. Programming mistakes are
// assertions.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace winnow {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws Error with a formatted message: fail("{}: tensor {}: ...", path, name).
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(fmt::format(format, std::forward<Args>(args)...));
}

/// fail(...) unless `ok`.
template <class... Args>
void require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok) [[unlikely]] {
    throw Error(fmt::format(format, std::forward<Args>(args)...));
  }
}

/// require() for a system call: the message ends in what errno says.
template <class... Args>
void require_system(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  // errno is read here and not among the arguments, which may be evaluated before `ok`.
  if (!ok) [[unlikely]] {
    const int code = errno;
    throw Error(fmt::format(format, std::forward<Args>(args)...) + ": " + std::strerror(code));
  }
}

}  // namespace winnow
