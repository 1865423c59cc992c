// Writing tensors that are never in memory together.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "checkpoint/safetensors.h"

namespace winnow {

using WriteBytes = std::function<void(std::span<const std::byte>)>;
/// Gives `write` all bytes of the tensor, in as many pieces as it likes.
using WriteData = std::function<void(const std::string& name, const WriteBytes& write)>;

/// write_safetensors() of tensors of one type, whose views have no data: `write_data` is called for
/// each, in the order of names. Throws Error when it gives more bytes than the shape says, or
/// fewer.
void stream_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                        const std::map<std::string, std::string>& metadata,
                        const WriteData& write_data);

}  // namespace winnow
