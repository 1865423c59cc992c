#include "train/document.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "checkpoint/json.h"

namespace winnow::train {
namespace {

using nlohmann::ordered_json;

const std::string& text_of(const ordered_json& object, const char* key) {
  const ordered_json& value = object.at(key);
  require(value.is_string(), "{} is not a text", key);
  return value.get_ref<const std::string&>();
}

ordered_json parse_line(std::string_view line) {
  try {
    return ordered_json::parse(line);
  } catch (const nlohmann::json::exception& error) {
    fail("not JSON: {}", plain_message(error));
  }
}

}  // namespace

DocumentEncoder::DocumentEncoder(const std::filesystem::path& model, const ModelConfig& config,
                                 bool mask_prompts)
    : tokenizer_(load_tokenizer(model)), begin_(config.bos_token), mask_prompts_(mask_prompts) {
  require(tokenizer_->vocab_size() <= config.vocab,
          "{}: the tokenizer has {} tokens, the model a vocabulary of {}", model.string(),
          tokenizer_->vocab_size(), config.vocab);
  if (auto found = ChatTemplate::load(model)) {
    template_ = std::make_shared<const ChatTemplate>(std::move(*found));
  }
  if (!config.eos_tokens.empty()) {
    end_ = config.eos_tokens.front();
  }
}

Document DocumentEncoder::encode(std::string_view line) const {
  const ordered_json object = parse_line(line);
  require(object.is_object(), "not a JSON object");
  Document document;
  if (object.contains("text")) {
    append_text(document, text_of(object, "text"), true);
  } else if (object.contains("prompt") && object.contains("completion")) {
    append_text(document, text_of(object, "prompt"), !mask_prompts_);
    append_text(document, text_of(object, "completion"), true);
  } else {
    require(object.contains("messages"),
            "neither \"text\" nor \"prompt\" and \"completion\" nor \"messages\" is there");
    return chat(object.at("messages"));
  }
  append_end(document);
  return document;
}

// A turn of the assistant is what the template adds for it after its own invitation to answer, so
// that tokens are cut where they are cut when the model is used.
Document DocumentEncoder::chat(const ordered_json& messages) const {
  require(template_ != nullptr, "\"messages\", but the model has no chat template");
  require(messages.is_array() && !messages.empty(), "\"messages\" is not a list of messages");
  Document document;
  ordered_json so_far = ordered_json::array();
  std::string rendered;
  const auto extend = [&](const ordered_json& turns, bool invite, bool trained) {
    const std::string whole = template_->render(turns, invite);
    require(whole.starts_with(rendered),
            "the chat template renders a chat's beginning in another way when it goes on");
    append_text(document, std::string_view(whole).substr(rendered.size()), trained, true);
    rendered = whole;
  };
  for (const ordered_json& message : messages) {
    require(message.is_object() && message.contains("role") && message.contains("content"),
            "a message has no role or no content");
    const bool answer = message.at("role") == "assistant";
    if (answer && !so_far.empty()) {
      extend(so_far, true, !mask_prompts_);
    }
    so_far.push_back(message);
    if (answer) {
      extend(so_far, false, true);
    }
  }
  if (messages.back().at("role") != "assistant") {
    extend(so_far, false, !mask_prompts_);
  }
  // The template writes the beginning-of-text token itself.
  if (begin_ && !document.tokens.empty() && document.tokens.front() == *begin_) {
    document.tokens.erase(document.tokens.begin());
    if (!document.trained.empty()) {
      document.trained.erase(document.trained.begin());
    }
  }
  return document;
}

void DocumentEncoder::append_text(Document& document, std::string_view text, bool trained,
                                  bool parse_special) const {
  const auto tokens =
      tokenizer_->encode(text, {.add_special = false, .parse_special = parse_special});
  if (mask_prompts_) {
    document.trained.insert(document.trained.end(), tokens.size(), trained ? 1 : 0);
  }
  document.tokens.insert(document.tokens.end(), tokens.begin(), tokens.end());
}

void DocumentEncoder::append_end(Document& document) const {
  if (end_) {
    document.tokens.push_back(*end_);
    if (mask_prompts_) {
      document.trained.push_back(1);
    }
  }
}

}  // namespace winnow::train
