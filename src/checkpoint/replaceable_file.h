// Which files a command may replace: nobody loses a file by naming the wrong one.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace winnow {

/// A kind of file that a command writes.
struct FileKind {
  std::string_view name;  // in messages: "a calibration"
  /// Whether a regular file that is not empty is of this kind, by what it holds. May throw: then it
  /// is not.
  std::function<bool(const std::filesystem::path&)> recognises;
};

/// Throws Error unless `path` can be written without a loss: its folder exists, and at `path` is
/// nothing, an empty file, a device or pipe, or a file of the `kind`, which the new one replaces.
/// Commands call this before long computations. The message ends with `advice`.
void require_replaceable(const std::filesystem::path& path, const FileKind& kind,
                         std::string_view advice = "name another file");

/// A kind of text that begins with `beginning`.
FileKind text_that_begins(std::string_view name, std::string_view beginning);

/// A kind of safetensors file that holds only tensors with names that `is_ours` takes, at least
/// one.
FileKind safetensors_of(std::string_view name, std::function<bool(std::string_view)> is_ours);

}  // namespace winnow
