// The parts of a weight file, in safetensors or GGUF, from which a checkpoint can be described.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace winnow {

/// The bytes of the header of a file that begins with `start`, which may be more than `start` has;
/// nullopt if `start` is too short to tell. Throws Error if it is malformed.
std::optional<std::uint64_t> weight_header_size(std::span<const std::byte> start,
                                                const std::string& name);

/// The header does not suffice to describe the model.
class ValuesNeeded : public Error {
 public:
  using Error::Error;
};

/// The values, as parts of `file`, that decide how the model is described: GGUF files state
/// divisors of RoPE's frequencies in tensors. Reads only the header. Throws ValuesNeeded if weights
/// are quantised to integers: their scales decide whether they stay small in memory. Throws Error
/// if the header is malformed.
std::vector<std::span<const std::byte>> describing_values(std::span<const std::byte> file,
                                                          const std::string& name);

}  // namespace winnow
