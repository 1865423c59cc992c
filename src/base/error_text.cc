#include "base/error_text.h"

#include <new>

namespace winnow {

std::string error_text(const std::exception& error) {
  // The library's text for it is the name of a type.
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ? "out of memory" : error.what();
}

}  // namespace winnow
