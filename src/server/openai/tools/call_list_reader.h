// Reads several calls inside one pair of marks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/openai/tools/tool_format.h"

namespace winnow::server {

/// OPENING call BETWEEN call ... CLOSING, with white space anywhere between.
class CallListReader : public ToolCallReader {
 public:
  using MakeReader = std::function<std::unique_ptr<ToolCallReader>()>;

  /// `opening`: its words, one after another. `make`: creates the reader of one call.
  CallListReader(std::vector<std::string> opening, std::string_view between,
                 std::string_view closing, MakeReader make)
      : opening_(std::move(opening)),
        between_(between),
        closing_(closing),
        make_(std::move(make)) {}

  bool read(std::string& text, std::vector<ToolDelta>& deltas) override;
  [[nodiscard]] bool ended() const override { return place_ == Place::over; }

 private:
  enum class Place : std::uint8_t { first, between, call, over };

  bool read_first(std::string& text, std::vector<ToolDelta>& deltas);
  bool read_between(std::string& text);

  std::vector<std::string> opening_;
  std::string between_;
  std::string closing_;
  MakeReader make_;
  Place place_ = Place::first;
  std::unique_ptr<ToolCallReader> call_;
};

}  // namespace winnow::server
