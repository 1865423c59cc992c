// The error of a prompt for which there are too few tokens.
#pragma once

#include "base/error.h"

namespace winnow::eval {

/// What is asked takes more tokens than it may. Other lengths, or other models, would do.
class DoesNotFit : public Error {
 public:
  using Error::Error;
};

template <class... Args>
void require_fit(bool fits, fmt::format_string<Args...> format, const Args&... args) {
  if (!fits) {
    throw DoesNotFit(fmt::vformat(format, fmt::make_format_args(args...)));
  }
}

}  // namespace winnow::eval
