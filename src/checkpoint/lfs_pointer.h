// Git LFS pointers: a clone without git-lfs has them instead of large files.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace winnow {

/// Throws Error if `bytes`, the content of a file, are a pointer: the file itself was not
/// downloaded. `name` is the file's name in the message.
inline void reject_lfs_pointer(std::string_view bytes, const std::string& name) {
  require(!bytes.starts_with("version https://git-lfs.github.com/spec/"),
          "{}: a Git LFS pointer stands in place of the file; run \"git lfs pull\" in its "
          "directory, or download the file itself",
          name);
}

}  // namespace winnow
