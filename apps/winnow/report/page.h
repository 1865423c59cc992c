// What all web pages of winnow have in common.
#pragma once

#include <filesystem>
#include <string_view>

namespace winnow::cli {

/// How every page begins. By this a page is recognised when it is written again.
inline constexpr std::string_view kPageBegins =
    "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<meta name=\"generator\" content=\"winnow\">\n";

/// Throws Error, before anything is computed, if `path` holds something other than such a page.
void require_page(const std::filesystem::path& path);
/// Writes a page: kPageBegins and `rest`.
void write_page(const std::filesystem::path& path, std::string_view rest);

}  // namespace winnow::cli
