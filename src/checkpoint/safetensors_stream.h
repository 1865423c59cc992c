// Writes tensors that do not fit into memory together.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "checkpoint/safetensors.h"

namespace winnow {

using WriteBytes = std::function<void(std::span<const std::byte>)>;
/// Passes all bytes of a tensor to `write`, in any number of pieces.
using WriteData = std::function<void(const std::string& name, const WriteBytes& write)>;

/// write_safetensors() for tensors of one type, whose views have no data: calls `write_data` for
/// each, sorted by name. Throws Error if the number of bytes does not match the
/// shape.
void stream_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                        const std::map<std::string, std::string>& metadata,
                        const WriteData& write_data);

}  // namespace winnow
