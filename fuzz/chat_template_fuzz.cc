// Any text as a chat template, rendered with a conversation that has all that templates look at: an
// Error of one line, or text. Never a crash, a hang or endless memory.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/utf8.h"

namespace {

const nlohmann::ordered_json& conversation() {
  static const nlohmann::ordered_json messages = nlohmann::ordered_json::parse(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi, Zürich! "},
    {"role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [
      {"id": "abcdefghi", "function": {"name": "f", "arguments": {"x": 1.5, "y": [true]}}}]},
    {"role": "tool", "content": "{}"},
    {"role": "assistant", "content": "<think>\nso\n</think>\n\nDone."}])");
  return messages;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  try {
    const winnow::ChatTemplate chat(source, "fuzz", [] { return 1700000000; });
    const std::string text = chat.render(conversation(), true, {{"enable_thinking", false}});
    if (!winnow::is_valid_utf8(text)) {
      std::abort();
    }
  } catch (const winnow::Error& error) {
    const std::string_view what = error.what();
    if (!what.starts_with("fuzz:") || what.find('\n') != std::string_view::npos) {
      std::abort();
    }
  }
  return 0;
}
