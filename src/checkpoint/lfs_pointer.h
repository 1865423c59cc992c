// Git LFS pointers: what a clone without git-lfs has in place of large files.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace winnow {

/// Error when `bytes`, a file's, are a pointer: the file itself has not been downloaded. `name`
/// stands for the file in the message.
inline void reject_lfs_pointer(std::string_view bytes, const std::string& name) {
  require(!bytes.starts_with("version https://git-lfs.github.com/spec/"),
          "{}: a Git LFS pointer stands in place of the file; run \"git lfs pull\" in its "
          "directory, or download the file itself",
          name);
}

}  // namespace winnow
