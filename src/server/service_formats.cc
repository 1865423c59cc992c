// The model's formats of calls and thoughts, and constraints for them.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/json_text.h"
#include "server/http/api_error.h"
#include "server/openai/template_variables.h"
#include "server/openai/tools/tool_prompt.h"
#include "server/service.h"

namespace winnow::server {

using Json = nlohmann::ordered_json;

std::shared_ptr<const engine::TokenConstraint> Service::constraint(const AnswerFormat& format,
                                                                   std::string_view header) {
  return format.kind == AnswerFormat::Kind::text
             ? nullptr
             : hold_to(grammars_.find(format, header), format.field);
}

std::shared_ptr<const engine::TokenConstraint> Service::tool_constraint(const ToolRequest& tools) {
  const bool strict = tools.are_some || std::ranges::any_of(tools.tools, &Tool::strict);
  if (!tools.may_call() || !(tools.must_call() || strict)) {
    return nullptr;
  }
  const ToolFormat& format = tool_format();
  std::string key = fmt::format("tools {} {} {} {}", format.name(), static_cast<int>(tools.choice),
                                tools.parallel, json_text(tools.described));
  for (const Tool& tool : tools.tools) {
    const bool may = tools.choice != ToolRequest::Choice::named || tool.name == tools.named;
    key += may ? " " + tool.name : "";
  }
  return hold_to(grammars_.find(key, "tools", [&] { return tool_rules(format, tools); }), "tools");
}

std::shared_ptr<const engine::TokenConstraint> Service::hold_to(
    std::shared_ptr<grammar::TokenGrammar> grammar, const std::string& param) const {
  if (model().eos_tokens.empty()) {
    throw ApiError(400, "the model has no end-of-text token, so no answer could end with its form",
                   param, "unsupported_parameter");
  }
  return std::make_shared<const GrammarConstraint>(std::move(grammar), model().eos_tokens);
}

const ToolFormat& Service::tool_format() const {
  if (tool_format_ == nullptr) {
    throw ApiError(400,
                   fmt::format("tools: this model writes calls in a format that is not known here "
                               "(--tool-format: {})",
                               tool_format_names()),
                   "tools", "unsupported_parameter");
  }
  return *tool_format_;
}

// If the template does not support tools, they go into a system message, which asks for the format
// that most models know.
void Service::find_tool_format() {
  if (!config_.tool_format.empty()) {
    tool_format_ = server::find_tool_format(config_.tool_format);
    require(tool_format_ != nullptr, "--tool-format {}: expected {}", config_.tool_format,
            tool_format_names());
  } else if (chat_template_) {
    tool_format_ = tool_format_of(*chat_template_);
    ChatPrompt probe;
    probe.conversation.messages.push_back({{"role", "user"}, {"content", "a"}});
    probe.variables["tools"] = Json::array(
        {{{"type", "function"},
          {"function", {{"name", "f"}, {"description", "f"}, {"parameters", Json::object()}}}}});
    try {
      if (tool_format_ == nullptr && !shows_tools(*chat_template_, probe)) {
        tool_format_ = server::find_tool_format("hermes");
      }
    } catch (const Error&) {  // it needs more fields of a tool, so it supports tools
    }
  }
}

void Service::find_thought_format() {
  if (config_.reasoning_format.empty()) {
    thought_format_ = thought_format_of(tokenizer_);
  } else if (config_.reasoning_format != "none") {
    thought_format_ = server::find_thought_format(config_.reasoning_format);
    require(thought_format_ != nullptr, "--reasoning-format {}: expected none, {}",
            config_.reasoning_format, thought_format_names());
  }
}

// Fields that the template does not support are refused, unless they ask for no thoughts.
void Service::check_template_fields(CompletionRequest& request) const {
  check_effort(request);
  if (!chat_template_ || request.prompt.chat_template) {
    return;
  }
  const ThoughtRequest& thoughts = request.thoughts;
  try {
    const ChatPrompt prompt = with_tool_variable(request.prompt);
    check_variables(*chat_template_, prompt, request.ignored);
    check_roles(*chat_template_, prompt);
    if (thoughts.for_template.empty() ||
        tells_apart(*chat_template_, prompt, other_thoughts(prompt.variables))) {
      return;
    }
  } catch (const Error&) {  // the prompt is refused later, with the reason
    return;
  }
  if (thoughts.wanted && !thoughts.lenient) {
    const std::string& field = thoughts.for_template.back();
    throw ApiError(400, fmt::format("{}: this model's chat template has no place for it", field),
                   field, "unsupported_parameter");
  }
  std::ranges::copy(thoughts.for_template, std::back_inserter(request.ignored));
}

// gpt-oss knows three efforts; its template would write any other word into the prompt.
void Service::check_effort(const CompletionRequest& request) const {
  const Json effort = request.prompt.variables.value("reasoning_effort", Json());
  if (thought_format_ != nullptr && thought_format_->has_channels() && effort.is_string() &&
      effort != "low" && effort != "medium" && effort != "high") {
    throw ApiError(400,
                   fmt::format("reasoning_effort is {}; this model knows low, medium and high",
                               json_text(effort)),
                   "reasoning_effort", "unsupported_parameter");
  }
}

void Service::find_marks() {
  std::vector<std::string> texts;
  if (tool_format_ != nullptr) {
    texts = tool_format_->marks();
  }
  if (thought_format_ != nullptr) {
    std::ranges::move(thought_format_->marks(), std::back_inserter(texts));
  }
  for (const std::string& text : texts) {
    if (const auto token = tokenizer_.find(text); token && tokenizer_.is_special(*token)) {
      marks_.push_back(*token);
    }
  }
  grammars_.keep_text_of(marks_);
}

}  // namespace winnow::server
