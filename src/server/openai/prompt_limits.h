// What a request may hold for a context, by size: refused before it is converted, since every form
// of a large body takes memory and time.
#pragma once

#include <cstddef>
#include <string>

#include "server/openai/field_table.h"

namespace winnow::server {

/// Of a text, at most; words have about 5.
inline constexpr std::size_t kBytesPerToken = 64;

/// Refuses a text that is far too long for the context: tokenising it would block a server thread
/// for long.
void check_text_bytes(std::size_t bytes, int context, const std::string& param);

/// Refuses lists that become prompts (messages, input, tools, ...) by their items alone: each
/// counts as a byte, a message as a token. `context` 0: no limit.
void check_items(const CheckedBody& checked, int context);

}  // namespace winnow::server
