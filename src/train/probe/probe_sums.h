// What the training of a probe has read so far, in a file: an interrupted training goes on from
// there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <istream>
#include <map>
#include <nlohmann/json.hpp>

#include "train/probe/ridge.h"

namespace winnow::train {

struct ProbeSums {
  std::int64_t pieces = 0;                  // that the sums hold
  std::map<std::size_t, RidgeSums> layers;  // those that compress
};

/// A file of sums. It is written as a whole or not at all.
class ProbeSumsFile {
 public:
  /// `settings`: all that determines the sums, an object; its keys are named in messages.
  ProbeSumsFile(std::filesystem::path path, nlohmann::ordered_json settings);

  /// What an earlier training with these settings has left; nothing if there is no file. Throws
  /// Error if the file is damaged, or of other settings.
  [[nodiscard]] ProbeSums read() const;
  void write(const ProbeSums& sums) const;
  void remove() const;

 private:
  [[nodiscard]] ProbeSums read_body(std::istream& file, const nlohmann::json& header) const;

  std::filesystem::path path_;
  nlohmann::ordered_json settings_;
};

}  // namespace winnow::train
