// <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME
// ```json
// {...}
// ```<｜tool▁call▁end｜><｜tool▁calls▁end｜>
// (DeepSeek V3, R1 and its distillations)
// <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜><｜tool▁calls▁end｜>
// (DeepSeek V3.1)
#include <fmt/format.h>

#include "server/openai/tools/call_list_reader.h"
#include "server/openai/tools/formats.h"
#include "server/openai/tools/marked_call_reader.h"

namespace winnow::server {
namespace {

constexpr std::string_view kCallsBegin = "<｜tool▁calls▁begin｜>";
constexpr std::string_view kCallsEnd = "<｜tool▁calls▁end｜>";
constexpr std::string_view kCallBegin = "<｜tool▁call▁begin｜>";
constexpr std::string_view kCallEnd = "<｜tool▁call▁end｜>";
constexpr std::string_view kSeparator = "<｜tool▁sep｜>";

class DeepSeekFormat : public ToolFormat {
 public:
  /// The text before the name, between name and arguments, and after the arguments.
  DeepSeekFormat(std::string_view name, const std::string& before, const std::string& separator,
                 const std::string& behind)
      : name_(name), before_(before), separator_(separator), behind_(behind) {}

  std::string_view name() const override { return name_; }
  std::string_view begin() const override { return kCallsBegin; }
  std::vector<std::string> marks() const override {
    return {std::string(kCallsBegin), std::string(kCallsEnd), std::string(kCallBegin),
            std::string(kCallEnd), std::string(kSeparator)};
  }
  std::unique_ptr<ToolCallReader> reader(const ToolRequest& /*tools*/) const override {
    return std::make_unique<CallListReader>(
        std::vector<std::string>{std::string(kCallsBegin)}, "", kCallsEnd,
        [this] { return std::make_unique<MarkedCallReader>(before_, separator_, behind_); });
  }
  grammar::ExpressionPtr call(const Tool& tool, grammar::RuleSet& rules) const override {
    return grammar::sequence({grammar::bytes(before_ + tool.name + separator_),
                              json_arguments(tool, rules), grammar::bytes(behind_)});
  }
  std::string_view opening() const override { return kCallsBegin; }
  std::string_view between() const override { return separator_.back() == '\n' ? "\n" : ""; }
  std::string_view closing() const override { return kCallsEnd; }
  bool wrote(std::string_view rendered, std::string_view name) const override {
    return rendered.find(fmt::format("{}{}{}", before_, name, separator_)) !=
           std::string_view::npos;
  }

 private:
  std::string_view name_;
  std::string before_;
  std::string separator_;
  std::string behind_;
};

}  // namespace

const ToolFormat& deepseek_v3_format() {
  static const DeepSeekFormat format("deepseek_v3",
                                     fmt::format("{}function{}", kCallBegin, kSeparator),
                                     "\n```json\n", fmt::format("\n```{}", kCallEnd));
  return format;
}

const ToolFormat& deepseek_format() {
  static const DeepSeekFormat format("deepseek_v31", std::string(kCallBegin),
                                     std::string(kSeparator), std::string(kCallEnd));
  return format;
}

}  // namespace winnow::server
