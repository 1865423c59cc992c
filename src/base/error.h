// The one error style of winnow: exceptions of type Error.
//
// An Error is something the user can fix (a bad file, a bad flag, too little memory). Its message
// is one line that names what is wrong, where, and what was expected. Programming mistakes are
// assertions.
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <stdexcept>
#include <string>

namespace winnow {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws Error with the message. Not a template, so that its hundreds of callers compile fast.
[[noreturn]] void throw_error(fmt::string_view format, fmt::format_args args);
/// The same; the message ends with the system's text for errno `code`.
[[noreturn]] void throw_system_error(int code, fmt::string_view format, fmt::format_args args);

/// Throws Error with a formatted message: fail("{}: tensor {}: ...", path, name).
template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, const Args&... args) {
  throw_error(format, fmt::make_format_args(args...));
}

/// fail(...) unless `ok`.
template <class... Args>
void require(bool ok, fmt::format_string<Args...> format, const Args&... args) {
  if (!ok) [[unlikely]] {
    throw_error(format, fmt::make_format_args(args...));
  }
}

/// require() for a system call: the message ends with the system's text for errno.
template <class... Args>
void require_system(bool ok, fmt::format_string<Args...> format, const Args&... args) {
  // errno is read here and not among the arguments, which may be evaluated before `ok`.
  if (!ok) [[unlikely]] {
    const int code = errno;
    throw_system_error(code, format, fmt::make_format_args(args...));
  }
}

}  // namespace winnow
