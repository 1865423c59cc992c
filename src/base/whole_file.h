// Files read into memory at once.
#pragma once

#include <filesystem>
#include <string>

namespace winnow {

/// All bytes of a file, device or pipe. Throws Error, which names it, if it cannot be read: a
/// directory, too.
std::string read_whole_file(const std::filesystem::path& path);

/// The same; empty if there is no such file.
std::string read_file_if_there(const std::filesystem::path& path);

}  // namespace winnow
