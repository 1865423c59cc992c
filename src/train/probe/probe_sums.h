// What the training of a probe has read so far, in a file: an interrupted training goes on from
// there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "train/probe/ridge.h"

namespace winnow::train {

struct ProbeSums {
  std::int64_t pieces = 0;                  // that the sums hold
  std::map<std::size_t, RidgeSums> layers;  // those that compress
};

/// What the sums of a training must be like.
struct ProbeSumsShape {
  std::int64_t most_pieces = 0;
  std::vector<std::size_t> layers;  // those that compress
  std::size_t inputs = 0;
  std::size_t outputs = 0;
};

/// A file of sums. It is written as a whole or not at all.
class ProbeSumsFile {
 public:
  /// `settings`: all that determines the sums, an object; its keys are named in messages.
  ProbeSumsFile(std::filesystem::path path, nlohmann::ordered_json settings);

  /// What an earlier training with these settings has left; nothing if there is no file. Throws
  /// Error if the file is damaged, of other settings or of another shape. Removes what a killed
  /// process has written by halves, so nobody else may train into this folder.
  [[nodiscard]] ProbeSums read(const ProbeSumsShape& shape) const;
  /// Makes the folder.
  void write(const ProbeSums& sums) const;
  void remove() const;

 private:
  std::filesystem::path path_;
  nlohmann::ordered_json settings_;
};

}  // namespace winnow::train
