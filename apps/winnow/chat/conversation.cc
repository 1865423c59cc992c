#include "apps/winnow/chat/conversation.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "checkpoint/json.h"

namespace winnow::cli {
namespace {

ChatMessage message_of(const nlohmann::json& json, const std::string& where) {
  const auto has_text = [&json](const char* key) {
    return json.is_object() && json.contains(key) && json.at(key).is_string();
  };
  require(has_text("role") && has_text("content"),
          "{}: expected messages with a \"role\" and a \"content\"", where);
  return {json.at("role").get<std::string>(), json.at("content").get<std::string>()};
}

std::vector<ChatMessage> messages_of(const nlohmann::json& json, const std::string& where) {
  const nlohmann::json& list =
      json.is_object() && json.contains("messages") ? json.at("messages") : json;
  require(list.is_array(), "{}: expected a list of messages", where);
  std::vector<ChatMessage> messages;
  for (const nlohmann::json& message : list) {
    messages.push_back(message_of(message, where));
  }
  return messages;
}

bool is_message(const nlohmann::json& json) {
  return json.is_object() && json.size() == 2 && json.contains("role") && json.contains("content");
}

}  // namespace

FileKind conversation_file() {
  return {.name = "a conversation", .recognises = [](const std::filesystem::path& path) {
            const auto json = parse_json(read_text_file(path), path.string());
            return json.is_object() && json.size() == 1 && json.contains("messages") &&
                   json.at("messages").is_array() &&
                   std::ranges::all_of(json.at("messages"), is_message);
          }};
}

Conversation::Conversation(const Llm& llm, std::string system, Thinking thinking)
    : llm_(&llm), system_(std::move(system)), thinking_(thinking) {}

void Conversation::ask(std::string question) {
  turns_.push_back({.question = std::move(question)});
}

std::vector<std::int32_t> Conversation::prompt() {
  Turn& turn = turns_.back();
  turn.text = llm_->render_chat(messages(), thinking_);
  turn.tokens.clear();
  std::string_view rest = turn.text;
  if (turns_.size() > 1) {
    const Turn& before = turns_[turns_.size() - 2];
    // A template may render old answers differently: without their thoughts, for example.
    if (!before.text.empty() && rest.starts_with(before.text)) {
      turn.tokens = before.tokens;
      rest.remove_prefix(before.text.size());
    }
  }
  std::ranges::copy(llm_->tokenize(rest, /*add_special=*/false), std::back_inserter(turn.tokens));
  return turn.tokens;
}

void Conversation::answer(const Sample& sample) {
  Turn& turn = turns_.back();
  turn.answer = sample.text;
  turn.answered = true;
  turn.text += sample.text;
  // The template writes the end-of-text token itself.
  const std::size_t end = sample.finish_reason == "stop" ? 1 : 0;
  turn.tokens.insert(turn.tokens.end(), sample.token_ids.begin(),
                     sample.token_ids.end() - static_cast<std::ptrdiff_t>(end));
}

void Conversation::set_system(std::string system) {
  system_ = std::move(system);
  turns_.clear();
}

std::vector<ChatMessage> Conversation::messages() const {
  std::vector<ChatMessage> messages;
  if (!system_.empty()) {
    messages.push_back({"system", system_});
  }
  for (const Turn& turn : turns_) {
    messages.push_back({"user", turn.question});
    if (turn.answered) {
      messages.push_back({"assistant", turn.answer});
    }
  }
  return messages;
}

nlohmann::ordered_json Conversation::to_json() const {
  auto list = nlohmann::ordered_json::array();
  for (const ChatMessage& message : messages()) {
    list.push_back({{"role", message.role}, {"content", message.content}});
  }
  return {{"messages", std::move(list)}};
}

void Conversation::read_json(const nlohmann::json& json, const std::string& where) {
  std::vector<ChatMessage> messages = messages_of(json, where);
  std::string system;
  if (!messages.empty() && messages.front().role == "system") {
    system = std::move(messages.front().content);
    messages.erase(messages.begin());
  }
  std::vector<Turn> turns;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const bool asks = i % 2 == 0;
    require(messages[i].role == (asks ? "user" : "assistant"),
            "{}: a message of the {} where the {}'s turn is", where, messages[i].role,
            asks ? "user" : "assistant");
    if (asks) {
      turns.push_back({.question = std::move(messages[i].content)});
    } else {
      turns.back().answer = std::move(messages[i].content);
      turns.back().answered = true;
    }
  }
  require(turns.empty() || turns.back().answered, "{}: the last message has no answer", where);
  system_ = std::move(system);
  turns_ = std::move(turns);
}

}  // namespace winnow::cli
