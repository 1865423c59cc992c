// The cache as a picture for the terminal.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace winnow::cli {

/// A bar of `width` columns, filled to `share`, in eighths of a column.
std::string share_bar(double share, int width);

/// One line per layer, one bar per KV head: how many of `tokens` entries each head holds. `entries`
/// [layers * kv_heads]. With `colour`, from green (nearly nothing) to red (everything). Lines fit
/// 80 columns if there are at most 8 heads.
std::string cache_picture(std::span<const std::int32_t> entries, int kv_heads, int tokens,
                          bool colour);

}  // namespace winnow::cli
