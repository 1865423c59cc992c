#include "base/error.h"

#include <cstring>

namespace winnow {

void throw_error(fmt::string_view format, fmt::format_args args) {
  throw Error(fmt::vformat(format, args));
}

void throw_system_error(int code, fmt::string_view format, fmt::format_args args) {
  throw Error(fmt::vformat(format, args) + ": " + std::strerror(code));
}

}  // namespace winnow
