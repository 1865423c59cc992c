#include "train/document.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "tokenizer/chat_roles.h"

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
    return json_from<ordered_json>(line);
  } catch (const nlohmann::json::exception& error) {
    require(
        line.starts_with('{'),
        "not JSON, expected {{\"text\": \"...\"}}: jq -Rsc '{{text: .}}' FILE makes such a line "
        "of a file of plain text");
    fail("not JSON, expected {{\"text\": \"...\"}}: {}", plain_message(error));
  }
}

std::vector<std::string> keys_but(const ordered_json& object,
                                  std::initializer_list<std::string_view> known) {
  std::vector<std::string> others;
  for (const auto& [key, value] : object.items()) {
    if (std::ranges::find(known, key) == known.end()) {
      others.push_back(key);
    }
  }
  return others;
}

}  // namespace

std::shared_ptr<const Tokenizer> load_fitting_tokenizer(const std::filesystem::path& model,
                                                        const model::ModelSpec& spec) {
  std::shared_ptr<const Tokenizer> tokenizer = load_tokenizer(model);
  require(tokenizer->vocab_size() <= spec.vocab,
          "{}: the tokenizer has {} tokens, the model a vocabulary of {}", model.string(),
          tokenizer->vocab_size(), spec.vocab);
  return tokenizer;
}

DocumentEncoder::DocumentEncoder(const std::filesystem::path& model, const model::ModelSpec& spec,
                                 bool mask_prompts)
    : tokenizer_(load_fitting_tokenizer(model, spec)),
      begin_(spec.bos_token),
      prompt_weight_(mask_prompts ? 0.0F : 1.0F) {
  if (auto found = ChatTemplate::load(model)) {
    template_ = std::make_shared<const ChatTemplate>(std::move(*found));
  }
  if (!spec.eos_tokens.empty()) {
    end_ = spec.eos_tokens.front();
  }
}

Document DocumentEncoder::encode(std::string_view line) const {
  const ordered_json object = parse_line(line);
  require(object.is_object(), "not a JSON object, expected {{\"text\": \"...\"}}");
  Document document;
  if (object.contains("text")) {
    append_text(document, text_of(object, "text"), 1.0F);
    append_end(document);
    document.ignored = keys_but(object, {"text"});
  } else if (object.contains("parts")) {
    document = parts(object.at("parts"));
    document.ignored = keys_but(object, {"parts"});
  } else if (object.contains("prompt") && object.contains("completion")) {
    append_text(document, text_of(object, "prompt"), prompt_weight_);
    append_text(document, text_of(object, "completion"), 1.0F);
    append_end(document);
    document.ignored = keys_but(object, {"prompt", "completion"});
  } else {
    require(object.contains("messages"),
            "neither \"text\" nor \"parts\" nor \"prompt\" and \"completion\" nor \"messages\" is "
            "there");
    document = chat(object.at("messages"));
    document.ignored = keys_but(object, {"messages"});
  }
  return document;
}

// Parses the model's special tokens: data with weighted parts also marks where messages begin and
// end.
Document DocumentEncoder::parts(const ordered_json& parts) const {
  require(parts.is_array() && !parts.empty(), "\"parts\" is not a list of texts");
  Document document;
  for (const ordered_json& part : parts) {
    require(part.is_object() && part.contains("text"), "a part has no text");
    const std::vector<std::string> unknown = keys_but(part, {"text", "weight"});
    require(unknown.empty(), "a part has {}, expected \"text\" and \"weight\"",
            in_quotes(unknown.empty() ? "" : unknown.front()));
    const ordered_json weight = part.value("weight", ordered_json(1.0));
    require(weight.is_number() && weight.get<double>() >= 0.0 && weight.get<double>() <= 1e6,
            "a part's weight is not a number from 0 to 1e6");
    append_text(document, text_of(part, "text"), weight.get<float>(), Special::parsed);
  }
  return document;
}

// An answer of the assistant is the text that the template adds for it after the generation prompt.
// So text is tokenised in the same pieces as when the model is used.
Document DocumentEncoder::chat(const ordered_json& messages) const {
  require(template_ != nullptr, "\"messages\", but the model has no chat template");
  require(messages.is_array() && !messages.empty(), "\"messages\" is not a list of messages");
  for (const ordered_json& message : messages) {
    require(message.is_object() && message.contains("role") && message.contains("content"),
            "a message has no role or no content");
  }
  require_roles(messages, *template_);
  Document document;
  ordered_json so_far = ordered_json::array();
  std::string rendered;
  const auto extend = [&](const ordered_json& messages_so_far, bool invite, float weight) {
    const std::string whole = template_->render(messages_so_far, invite);
    require(
        whole.starts_with(rendered),
        "the chat template renders the beginning of a chat differently when more messages follow");
    append_text(document, std::string_view(whole).substr(rendered.size()), weight, Special::parsed);
    rendered = whole;
  };
  for (const ordered_json& message : messages) {
    const bool answer = message.at("role") == "assistant";
    if (answer && !so_far.empty()) {
      extend(so_far, true, prompt_weight_);
    }
    so_far.push_back(message);
    if (answer) {
      extend(so_far, false, 1.0F);
    }
  }
  if (messages.back().at("role") != "assistant") {
    extend(so_far, false, prompt_weight_);
  }
  // The template writes the beginning-of-text token itself.
  if (begin_ && !document.tokens.empty() && document.tokens.front() == *begin_) {
    document.tokens.erase(document.tokens.begin());
    if (!document.weights.empty()) {
      document.weights.erase(document.weights.begin());
    }
  }
  return document;
}

void DocumentEncoder::append_text(Document& document, std::string_view text, float weight,
                                  Special special) const {
  const auto tokens =
      tokenizer_->encode(text, {.add_special = false, .parse_special = special == Special::parsed});
  if (weight != 1.0F) {
    document.weights.resize(document.tokens.size(), 1.0F);
  }
  document.tokens.insert(document.tokens.end(), tokens.begin(), tokens.end());
  if (weight != 1.0F || !document.weights.empty()) {
    document.weights.resize(document.tokens.size(), weight);
  }
}

void DocumentEncoder::append_end(Document& document) const {
  if (end_) {
    document.tokens.push_back(*end_);
    if (!document.weights.empty()) {
      document.weights.push_back(1.0F);
    }
  }
}

}  // namespace winnow::train
