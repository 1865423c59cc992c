// The tools that a client offers a model.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "server/openai/json_fields.h"

namespace winnow::server {

struct Tool {
  std::string name;
  nlohmann::ordered_json parameters;  // a JSON Schema; null: any object
  bool strict = false;                // its arguments are always held to the schema
};

struct ToolRequest {
  enum class Choice : std::uint8_t { automatic, none, required, named };

  std::vector<Tool> tools;           // tools that may be called
  bool are_some = false;             // more tools are described than may be called
  nlohmann::ordered_json described;  // in the template's form
  Choice choice = Choice::automatic;
  std::string named;     // the tool that must be called
  bool parallel = true;  // allows more than one call

  /// The model may, or must, call a tool.
  [[nodiscard]] bool may_call() const { return !tools.empty() && choice != Choice::none; }
  /// The answer is nothing but calls.
  [[nodiscard]] bool must_call() const {
    return choice == Choice::required || choice == Choice::named;
  }
};

/// Reads tools, tool_choice and parallel_tool_calls. `ordered`: the same body with its keys
/// in their original order. Throws ApiError that names the invalid field.
ToolRequest parse_tools(const Fields& fields, const nlohmann::ordered_json& ordered);

}  // namespace winnow::server
