#include "base/whole_file.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "base/error.h"

namespace winnow {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 16;

// Not std::ifstream: its errors name no file.
using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

File open_to_read(const std::filesystem::path& path) {
  return {std::fopen(path.c_str(), "rbe"), std::fclose};
}

std::string rest_of(const File& file, const std::filesystem::path& path) {
  require_system(file != nullptr, "{}: cannot read", path.string());
  std::string text;
  std::array<char, kPieceBytes> piece{};
  for (std::size_t count = piece.size(); count == piece.size();) {
    count = std::fread(piece.data(), 1, piece.size(), file.get());
    require_system(std::ferror(file.get()) == 0, "{}: cannot read", path.string());
    text.append(piece.data(), count);
  }
  return text;
}

}  // namespace

std::string read_whole_file(const std::filesystem::path& path) {
  return rest_of(open_to_read(path), path);
}

std::string read_file_if_there(const std::filesystem::path& path) {
  const File file = open_to_read(path);
  return file == nullptr && errno == ENOENT ? std::string() : rest_of(file, path);
}

}  // namespace winnow
