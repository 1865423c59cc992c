// A bound on how deep a file may nest its components.
#pragma once

#include "tokenizer/json_field.h"

namespace winnow {

inline constexpr int kMaxComponentDepth = 16;

/// Error when `field` stands deeper in sequences of sequences than any sensible file has it: its
/// reader calls itself, and must not be led to the end of the stack.
inline void check_depth(const JsonField& field, int depth) {
  require(depth <= kMaxComponentDepth, "{}: nested too deep; expected at most {} levels",
          field.where(), kMaxComponentDepth);
}

}  // namespace winnow
