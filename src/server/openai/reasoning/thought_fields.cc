#include "server/openai/reasoning/thought_fields.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "tokenizer/chat_template.h"

namespace winnow::server {
namespace {

constexpr std::array<std::string_view, 6> kEfforts{"none",   "minimal", "low",
                                                   "medium", "high",    "xhigh"};

void switch_thinking(bool on, ChatPrompt& prompt) {
  for (const std::string_view name : ChatTemplate::kThinkingSwitches) {
    if (!prompt.variables.contains(name)) {
      prompt.variables[name] = on;
    }
  }
}

}  // namespace

nlohmann::ordered_json other_thoughts(nlohmann::ordered_json variables) {
  for (const std::string_view name : ChatTemplate::kThinkingSwitches) {
    if (variables.contains(name) && variables[name].is_boolean()) {
      variables[name] = !variables[name].get<bool>();
    }
  }
  if (variables.contains("reasoning_effort")) {
    variables["reasoning_effort"] = variables["reasoning_effort"] == "low" ? "high" : "low";
  }
  return variables;
}

ThoughtRequest parse_thoughts(const Fields& fields, ChatPrompt& prompt) {
  ThoughtRequest request;
  if (const auto on = fields.boolean("enable_thinking")) {
    switch_thinking(*on, prompt);
    request.for_template.emplace_back("enable_thinking");
    request.wanted = *on;
  }
  if (const auto effort = fields.text("reasoning_effort")) {
    if (std::ranges::find(kEfforts, *effort) == kEfforts.end()) {
      fields.reject("reasoning_effort", "none, minimal, low, medium, high or xhigh");
    }
    request.for_template.emplace_back("reasoning_effort");
    request.wanted = request.wanted || *effort != "none";
    if (*effort == "none") {
      switch_thinking(false, prompt);
    } else if (!prompt.variables.contains("reasoning_effort")) {
      prompt.variables["reasoning_effort"] = *effort;
    }
  }
  if (const int budget = fields.integer_or("thinking_token_budget", -1); budget >= 0) {
    request.budget = budget;
  }
  request.told = fields.boolean_or("include_reasoning", true);
  request.apart = fields.boolean_or("separate_reasoning", true);
  if (const auto format = fields.text("reasoning_format")) {
    if (format != "auto" && format != "none" && format != "deepseek") {
      fields.reject("reasoning_format", "auto, none or deepseek");
    }
    request.apart = request.apart && format != "none";
  }
  return request;
}

}  // namespace winnow::server
