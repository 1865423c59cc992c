#include "server/openai/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "server/http/api_error.h"

namespace winnow::server {
namespace {

using nlohmann::json;
using Json = nlohmann::ordered_json;
using Choice = ToolRequest::Choice;

constexpr std::size_t kMostTools = 512;
constexpr std::size_t kMostName = 128;

bool is_tool_name(const std::string& name) {
  return !name.empty() && name.size() <= kMostName &&
         std::ranges::all_of(name, [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
         });
}

Tool parse_tool(const json& value, const Json& ordered, const std::string& path) {
  const Fields fields(value, path);
  if (fields.text("type").value_or("function") != "function") {
    fields.reject("type", "\"function\"");
  }
  const json* function = fields.object("function");
  if (function == nullptr) {
    fields.reject("function", "an object");
  }
  const Fields inner(*function, path + "function.");
  Tool tool;
  tool.name = inner.text("name").value_or("");
  if (!is_tool_name(tool.name)) {
    inner.reject("name", fmt::format("up to {} letters, digits, '_', '-' or '.'", kMostName));
  }
  (void)inner.text("description");
  tool.strict = inner.boolean_or("strict", false);
  if (inner.object("parameters") != nullptr) {
    tool.parameters = ordered.at("function").at("parameters");
  }
  return tool;
}

std::vector<Tool>::const_iterator find_tool(const ToolRequest& request, const Fields& named) {
  const auto found = std::ranges::find(request.tools, named.text("name").value_or(""), &Tool::name);
  if (found == request.tools.end()) {
    named.reject("name", "the name of one of the tools");
  }
  return found;
}

// {"mode": "auto" or "required", "tools": [{"type": "function", "function": {"name": ...}}]}
void allow_tools(const Fields& allowed, const std::string& path, ToolRequest& request) {
  const std::string mode = allowed.text("mode").value_or("");
  if (mode != "auto" && mode != "required") {
    allowed.reject("mode", "\"auto\" or \"required\"");
  }
  const json* names = allowed.find("tools");
  if (names == nullptr || !names->is_array() || names->empty()) {
    allowed.reject("tools", "an array of at least one function");
  }
  std::vector<Tool> tools;
  for (std::size_t i = 0; i < names->size(); ++i) {
    const std::string where = fmt::format("{}tools[{}]", path, i);
    const json& name = (*names)[i];
    const Fields inner(name, where + ".");
    const json* function = name.is_object() ? inner.object("function") : nullptr;
    if (function == nullptr) {
      allowed.reject("tools", "functions, each with its name");
    }
    tools.push_back(*find_tool(request, Fields(*function, where + ".function.")));
  }
  request.are_some = true;
  request.tools = std::move(tools);
  request.choice = mode == "auto" ? Choice::automatic : Choice::required;
}

void parse_choice(const Fields& fields, ToolRequest& request) {
  const json* value = fields.find("tool_choice");
  if (value == nullptr) {
    return;
  }
  if (*value == "auto") {
    request.choice = Choice::automatic;
  } else if (*value == "none") {
    request.choice = Choice::none;
  } else if (*value == "required") {
    request.choice = Choice::required;
  } else if (value->is_object()) {
    const Fields inner(*value, "tool_choice.");
    const auto type = inner.text("type");
    if (type == "allowed_tools" && inner.object("allowed_tools") != nullptr) {
      const std::string path = "tool_choice.allowed_tools.";
      allow_tools(Fields(*inner.object("allowed_tools"), path), path, request);
      return;
    }
    if (type != "function") {
      inner.reject("type", "\"function\", with the function's name beside it, or allowed_tools");
    }
    const json* function = inner.object("function");
    if (function == nullptr) {
      inner.reject("function", "an object with the function's name");
    }
    request.named = find_tool(request, Fields(*function, "tool_choice.function."))->name;
    request.choice = Choice::named;
  } else {
    fields.reject("tool_choice", "\"auto\", \"none\", \"required\" or a function");
  }
  if (request.must_call() && request.tools.empty()) {
    fields.reject("tool_choice", "tools that can be called");
  }
}

}  // namespace

ToolRequest parse_tools(const Fields& fields, const Json& ordered) {
  ToolRequest request;
  if (const json* tools = fields.find("tools")) {
    if (tools->size() > kMostTools) {
      fields.reject("tools", fmt::format("an array of at most {} functions", kMostTools));
    }
    request.described = ordered.at("tools");
    for (std::size_t i = 0; i < tools->size(); ++i) {
      Tool tool = parse_tool((*tools)[i], request.described[i], fmt::format("tools[{}].", i));
      if (std::ranges::find(request.tools, tool.name, &Tool::name) != request.tools.end()) {
        fields.reject("tools", fmt::format("names of which none comes twice ({})", tool.name));
      }
      request.tools.push_back(std::move(tool));
    }
  }
  parse_choice(fields, request);
  request.parallel = fields.boolean_or("parallel_tool_calls", true);
  return request;
}

}  // namespace winnow::server
