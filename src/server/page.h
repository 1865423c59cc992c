// The files of the page at "/", embedded in the program.
#pragma once

#include <string_view>

namespace winnow::server {

struct PageFile {
  std::string_view path;  // "/", "/page.js", ...
  std::string_view content_type;
  std::string_view content;
};

/// The file at exactly this path; null when there is none.
const PageFile* find_page_file(std::string_view path);

}  // namespace winnow::server
