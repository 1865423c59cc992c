// Formats in which models write tool calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/expression.h"
#include "server/openai/tool_fields.h"
#include "tokenizer/chat_template.h"

namespace winnow::server {

/// A part of a call that became final.
struct ToolDelta {
  std::string name = {};       // not empty: a call begins
  std::string arguments = {};  // more of its arguments, as JSON
};

/// Incrementally parses the text between the marks of one or several calls.
class ToolCallReader {
 public:
  virtual ~ToolCallReader() = default;
  /// Removes text from the front of `text`; appends deltas that became final. False when this is
  /// not a call; then no delta may have been reported before.
  virtual bool read(std::string& text, std::vector<ToolDelta>& deltas) = 0;
  /// The call has ended, and its closing mark was read.
  [[nodiscard]] virtual bool ended() const = 0;
};

/// A model's format for calls. Each is defined in its own file in this folder.
class ToolFormat {
 public:
  virtual ~ToolFormat() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// The text that begins a call, or the first of several; text before it is content.
  [[nodiscard]] virtual std::string_view begin() const = 0;
  /// Marks that may be special tokens of the model: they keep their text if calls are looked
  /// for.
  [[nodiscard]] virtual std::vector<std::string> marks() const { return {}; }
  /// Reads from begin() on. `tools` must outlive the reader.
  [[nodiscard]] virtual std::unique_ptr<ToolCallReader> reader(const ToolRequest& tools) const = 0;
  /// The grammar of a tool call, including marks, with arguments constrained by its parameters.
  /// Throws Error like json_schema_rules().
  [[nodiscard]] virtual grammar::ExpressionPtr call(const Tool& tool,
                                                    grammar::RuleSet& rules) const = 0;
  /// The text before the first call, between two, and after the last.
  [[nodiscard]] virtual std::string_view opening() const { return {}; }
  [[nodiscard]] virtual std::string_view between() const = 0;
  [[nodiscard]] virtual std::string_view closing() const { return {}; }
  /// Whether an answer ends with its first call.
  [[nodiscard]] virtual bool ends_with_a_call() const { return false; }
  /// Whether a template rendered a call of the tool `name` in this format.
  [[nodiscard]] virtual bool wrote(std::string_view rendered, std::string_view name) const = 0;
  /// Whether the template refuses ids of calls that are not nine letters or digits.
  [[nodiscard]] virtual bool has_short_ids() const { return false; }
};

/// A tool's arguments as JSON; any object for one without parameters.
grammar::ExpressionPtr json_arguments(const Tool& tool, grammar::RuleSet& rules);
/// Text that does not contain `mark`.
grammar::ExpressionPtr text_without(std::string_view mark);

/// The format of this name; null when there is none.
const ToolFormat* find_tool_format(std::string_view name);
/// All names, for messages.
std::string tool_format_names();
/// The format in which the template renders calls; null when it is unknown.
const ToolFormat* tool_format_of(const ChatTemplate& chat);

/// Rules for answers that consist of calls only, or, unless a call is required, text followed by
/// calls. Throws Error like json_schema_rules().
grammar::RuleSet tool_rules(const ToolFormat& format, const ToolRequest& request);

/// The system message for a model whose template does not support tools.
std::string tool_instructions(const ToolRequest& request);

}  // namespace winnow::server
