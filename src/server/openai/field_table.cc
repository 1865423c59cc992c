#include "server/openai/field_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cctype>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/spelling.h"
#include "checkpoint/json_text.h"
#include "server/http/api_error.h"
#include "server/openai/field_types.h"

namespace winnow::server {
namespace {

using nlohmann::json;

const FieldRule* find_rule(std::string_view name, Endpoint endpoint) {
  const auto rules = field_rules();
  const auto found = std::ranges::find_if(rules, [&](const FieldRule& rule) {
    return rule.name == name && (rule.endpoints & static_cast<EndpointSet>(endpoint)) != 0;
  });
  return found == rules.end() ? nullptr : &*found;
}

const FieldRule& target_of(const FieldRule& rule, Endpoint endpoint) {
  const FieldRule* target = rule.alias_of.empty() ? &rule : find_rule(rule.alias_of, endpoint);
  assert(target != nullptr);
  return *target;
}

// Whether a value has no effect.
bool is_neutral(const json& value, std::string_view neutral) {
  return value.is_null() || value == false ||
         value == 0 ||  // NOLINTNEXTLINE(readability-container-size-empty): of a text
         value == "" || (value.is_structured() && value.empty()) ||
         (!neutral.empty() && value == json_from<json>(neutral));
}

// The field whose name an unknown one misspells; "" when none is similar.
std::string_view misspelled(std::string_view name, Endpoint endpoint) {
  constexpr std::size_t kShortest = 4;
  for (const FieldRule& rule : field_rules()) {
    if (name.size() >= kShortest && rule.name.size() >= kShortest &&
        (rule.endpoints & static_cast<EndpointSet>(endpoint)) != 0 &&
        is_one_slip_away(name, rule.name)) {
      return rule.name;
    }
  }
  return {};
}

constexpr EndpointSet kCompletions = 15;          // completions, chats and their tokens
constexpr EndpointSet kPrompts = 64 | 128 | 256;  // requests that generate no text

std::string endpoints_text(EndpointSet endpoints) {
  static constexpr std::pair<Endpoint, std::string_view> kNames[] = {
      {Endpoint::completions, "completions"}, {Endpoint::chat, "chats"},
      {Endpoint::tokenize, "tokenize"},       {Endpoint::detokenize, "detokenize"},
      {Endpoint::messages, "messages"},       {Endpoint::responses, "responses"},
      {Endpoint::embeddings, "embeddings"},   {Endpoint::rerank, "rerank"},
      {Endpoint::prefill, "prefill"}};
  std::string text;
  for (const auto& [endpoint, name] : kNames) {
    if ((endpoints & static_cast<EndpointSet>(endpoint)) != 0) {
      text += text.empty() ? "" : ", ";
      text += name;
    }
  }
  return text;
}

std::string takes_text(const FieldRule& rule) {
  switch (rule.kind) {
    case FieldKind::text:
      return "a string";
    case FieldKind::boolean:
      return "true, false";
    case FieldKind::integer:
    case FieldKind::number:
      return fmt::format("{} to {}", rule.lowest, rule.highest);
    case FieldKind::structured:
      return std::string(rule.takes);
  }
  return {};
}

// The rows of the fields of `endpoints`. A column names a field's endpoints, unless they are the
// `usual` ones.
std::string honoured_rows(EndpointSet endpoints, EndpointSet usual) {
  const bool names_some = endpoints != usual;
  std::string page = names_some ? "| field | of | takes | default | |\n|---|---|---|---|---|\n"
                                : "| field | takes | default | |\n|---|---|---|---|\n";
  std::map<std::string_view, std::string> aliases;
  for (const FieldRule& rule : field_rules()) {
    if (!rule.alias_of.empty() && (rule.endpoints & endpoints) != 0) {
      aliases[rule.alias_of] += fmt::format(", `{}`", rule.name);
    }
  }
  for (const FieldRule& rule : field_rules()) {
    if (rule.treatment == Treatment::honoured && rule.alias_of.empty() &&
        (rule.endpoints & endpoints) != 0) {
      page += fmt::format("| `{}`{} | ", rule.name, aliases[rule.name]);
      if (names_some) {
        page += rule.endpoints == usual ? "| " : endpoints_text(rule.endpoints) + " | ";
      }
      page += fmt::format("{} | {} | {} |\n", takes_text(rule), rule.fallback, rule.note);
    }
  }
  return page;
}

// A list with one item per set of paths: a field refused by one path may work for another.
std::string other_rows(Treatment treatment) {
  std::map<EndpointSet, std::string> names;  // by endpoints
  for (const FieldRule& rule : field_rules()) {
    if (rule.treatment == treatment) {
      std::string& row = names[rule.endpoints];
      row += fmt::format("{}`{}`{}", row.empty() ? "" : ", ", rule.name,
                         rule.note.empty() ? "" : fmt::format(" ({})", rule.note));
    }
  }
  std::string page;
  for (const auto& [endpoints, row] : names) {
    page += fmt::format("- {}: {}\n", endpoints_text(endpoints), row);
  }
  return page;
}

}  // namespace

CheckedBody check_fields(json body, Endpoint endpoint) {
  CheckedBody checked{json::object(), {}, {}};
  for (auto& [name, value] : body.get_ref<json::object_t&>()) {
    const FieldRule* rule = find_rule(name, endpoint);
    if (rule == nullptr) {
      if (const auto meant = misspelled(name, endpoint); !meant.empty()) {
        throw ApiError(400, fmt::format("there is no field {}; is {} meant?", name, meant), name,
                       "unknown_parameter");
      }
      checked.ignored.push_back(name);
      continue;
    }
    if (rule->treatment == Treatment::refused && !is_neutral(value, rule->neutral)) {
      throw ApiError(
          400,
          fmt::format("{} is not supported{}{}", name, rule->note.empty() ? "" : ": ", rule->note),
          name, "unsupported_parameter");
    }
    if (rule->treatment == Treatment::ignored && !value.is_null()) {
      checked.ignored.push_back(name);
    }
    if (rule->treatment != Treatment::honoured || value.is_null()) {
      continue;
    }
    const FieldRule& target = target_of(*rule, endpoint);
    check_type(value, field_type(target, endpoint), name);
    const std::string key(target.name);
    if (checked.value.contains(key)) {
      throw ApiError(400,
                     fmt::format("{} and {} are the same field; give one of them",
                                 checked.spelled.at(key), name),
                     name, "invalid_value");
    }
    checked.spelled[key] = name;
    checked.value[key] = std::move(value);
  }
  return checked;
}

void take_chat_fields(const nlohmann::ordered_json& body, Endpoint endpoint,
                      std::vector<std::string>& ignored, nlohmann::ordered_json& chat) {
  static const std::set<std::string_view> kNoPlace{"n",
                                                   "best_of",
                                                   "winnow_votes",
                                                   "winnow_trace",
                                                   "logprobs",
                                                   "messages",
                                                   "prompt_logprobs",
                                                   "return_token_ids",
                                                   "echo",
                                                   "separate_reasoning",
                                                   "include_reasoning"};
  std::erase_if(ignored, [&](const std::string& name) {
    const FieldRule* rule = find_rule(name, Endpoint::chat);
    if (rule == nullptr || find_rule(name, endpoint) != nullptr) {
      return false;
    }
    const std::string_view key = target_of(*rule, Endpoint::chat).name;
    const bool has_place = !kNoPlace.contains(key) && !chat.contains(key);
    if (rule->treatment == Treatment::honoured && !has_place) {
      if (!is_neutral(body.at(name), "1")) {
        throw ApiError(400, fmt::format("{} is not supported here", name), name,
                       "unsupported_parameter");
      }
      return true;
    }
    chat[name] = body.at(name);
    return true;
  });
}

// A client's unknown names may be arbitrary and arbitrarily long.
void add_ignored(const std::vector<std::string>& ignored, HttpResponse& response) {
  constexpr std::size_t kMostBytes = 1024;
  std::string names;
  for (const std::string& name : ignored) {
    const bool is_plain = std::ranges::all_of(name, [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
    });
    if (names.size() + name.size() > kMostBytes) {
      names += names.empty() ? "..." : ", ...";
      break;
    }
    names += names.empty() ? "" : ", ";
    names += is_plain ? name : "?";
  }
  if (!names.empty()) {
    response.headers.emplace_back("X-Winnow-Ignored", names);
  }
}

std::string field_page() {
  constexpr auto kAnswers =
      static_cast<EndpointSet>(Endpoint::completions) | static_cast<EndpointSet>(Endpoint::chat);
  constexpr auto kResponses = static_cast<EndpointSet>(Endpoint::responses);
  constexpr auto kMessages = static_cast<EndpointSet>(Endpoint::messages);
  return fmt::format(
      "Fields of completions and chats, where `of` names no others:\n\n{}\nFields of "
      "`/v1/responses`:\n\n{}\nFields of `/v1/messages`:\n\n{}\nFields of `/v1/embeddings`, "
      "`/v1/rerank` and `/v1/prefill`:\n\n{}\nRefused with 400 that names the field, unless the "
      "value asks for "
      "nothing:\n\n{}\nIgnored, because they cannot change an answer, and named in the log and in "
      "the response header `X-Winnow-Ignored`, as is every unknown field (one whose name is one "
      "typo away from a known one is refused):\n\n{}\nResponses and messages treat fields that "
      "they lack as chats do, if their answers have a place for them.\n",
      honoured_rows(kCompletions, kAnswers), honoured_rows(kResponses, kResponses),
      honoured_rows(kMessages, kMessages), honoured_rows(kPrompts, 0),
      other_rows(Treatment::refused), other_rows(Treatment::ignored));
}

}  // namespace winnow::server
