// A bound on how deep a file may nest its components.
#pragma once

#include "tokenizer/json_field.h"

namespace winnow {

inline constexpr int kMaxComponentDepth = 16;

/// Error when `field` is nested deeper in sequences than in any sensible file: its
/// reader is recursive, and must not overflow the stack.
inline void check_depth(const JsonField& field, int depth) {
  require(depth <= kMaxComponentDepth, "{}: nested too deep; expected at most {} levels",
          field.where(), kMaxComponentDepth);
}

}  // namespace winnow
