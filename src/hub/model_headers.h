// A model of which only configuration and headers were brought from the Hub.
#pragma once

#include <filesystem>
#include <string>

#include "hub/pull.h"

namespace winnow::hub {

/// A directory that is removed with its contents.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// A model by its name, in a temporary folder. A checkpoint can be opened there, but its values are
/// not there: what they would tell is unknown.
class ModelHeaders {
 public:
  /// `model` must be a name. Throws Error.
  explicit ModelHeaders(const std::string& model, const OnProgress& on_progress = {});

  [[nodiscard]] const PulledHeaders& pulled() const { return pulled_; }
  /// `message` with the model's name in place of the temporary folder.
  [[nodiscard]] std::string with_name(std::string message) const;

 private:
  std::string name_;
  TemporaryFolder folder_;
  PulledHeaders pulled_;
};

}  // namespace winnow::hub
