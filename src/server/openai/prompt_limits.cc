#include "server/openai/prompt_limits.h"

#include <fmt/format.h>

#include "server/http/api_error.h"

namespace winnow::server {
namespace {

using nlohmann::json;

// The items of all arrays in `value`.
std::size_t items_in(const json& value) {
  std::size_t items = value.is_array() ? value.size() : 0;
  if (value.is_structured()) {
    for (const json& inner : value) {
      items += items_in(inner);
    }
  }
  return items;
}

std::size_t messages_in(const json& list) {
  std::size_t messages = 0;
  for (const json& item : list) {
    messages += item.is_object() && item.contains("role") ? 1 : 0;
  }
  return messages;
}

}  // namespace

void check_text_bytes(std::size_t bytes, int context, const std::string& param) {
  const std::size_t most = kBytesPerToken * static_cast<std::size_t>(context);
  if (bytes > most) {
    throw ApiError(400,
                   fmt::format("the text has {} bytes; for a context of {} tokens at most {} are "
                               "taken",
                               bytes, context, most),
                   param, "context_length_exceeded");
  }
}

void check_items(const CheckedBody& checked, int context) {
  if (context == 0) {
    return;
  }
  for (const char* name : {"messages", "input", "system", "tools", "documents"}) {
    const auto found = checked.value.find(name);
    if (found != checked.value.end() && found->is_array()) {
      check_text_bytes(items_in(*found) + kBytesPerToken * messages_in(*found), context,
                       checked.spelled.at(name));
    }
  }
}

}  // namespace winnow::server
