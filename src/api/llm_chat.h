// Formats chat prompts with a model's own template.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "winnow/llm.h"

namespace winnow::engine {

/// The prompt that asks for an answer to `messages`. Throws Error when the model has no template or
/// the template rejects them, or has no variable that turns thinking off.
std::string render_chat(const std::filesystem::path& directory,
                        std::span<const ChatMessage> messages,
                        Thinking thinking = Thinking::by_template);

}  // namespace winnow::engine
