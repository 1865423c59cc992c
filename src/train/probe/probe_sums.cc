#include "train/probe/probe_sums.h"

#include <fmt/std.h>

#include <fstream>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/json.h"

namespace winnow::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKind = "sums of a probe";
constexpr int kVersion = 1;
constexpr const char* kAdvice = "remove it to begin anew";

std::string digest_of(const ProbeSums& sums) {
  Sha256 digest;
  for (const auto& [layer, of_layer] : sums.layers) {
    of_layer.visit([&](std::span<const double> values) { digest.update(std::as_bytes(values)); });
  }
  return digest.finish();
}

// The header, a line of JSON.
nlohmann::json read_header(std::istream& file, const fs::path& path) {
  std::string line;
  std::getline(file, line);
  require(file.good(), "{}: damaged, it has no first line: {}", path, kAdvice);
  nlohmann::json header = parse_json(line, path.string());
  const bool is_ours = header.is_object() && header.value("kind", nlohmann::json()) == kKind &&
                       header.value("version", nlohmann::json()) == kVersion;
  require(is_ours, "{}: not the sums of a probe that this version writes: {}", path, kAdvice);
  return header;
}

void check_settings(const nlohmann::json& header, const nlohmann::ordered_json& settings,
                    const fs::path& path) {
  const nlohmann::json found = header.value("settings", nlohmann::json::object());
  for (const auto& [name, value] : settings.items()) {
    const nlohmann::json other = found.is_object() ? found.value(name, nlohmann::json()) : found;
    require(other == nlohmann::json(value), "{}: of a training with another {} ({}, now {}): {}",
            path, name, described(other), described(value), kAdvice);
  }
}

}  // namespace

ProbeSumsFile::ProbeSumsFile(fs::path path, nlohmann::ordered_json settings)
    : path_(std::move(path)), settings_(std::move(settings)) {}

ProbeSums ProbeSumsFile::read(const ProbeSumsShape& shape) const {
  if (fs::exists(path_.parent_path())) {
    remove_half_written(path_.parent_path());
  }
  if (!fs::exists(path_)) {
    return {};
  }
  std::ifstream file(path_, std::ios::binary);
  const nlohmann::json header = read_header(file, path_);
  check_settings(header, settings_, path_);
  ProbeSums sums{.pieces = JsonObject(header, path_.string())
                               .integer("pieces", 1, static_cast<int>(shape.most_pieces)),
                 .layers = {}};
  for (const std::size_t layer : shape.layers) {
    const auto added = sums.layers.try_emplace(layer, shape.inputs, shape.outputs);
    added.first->second.visit([&](std::span<double> values) {
      file.read(reinterpret_cast<char*>(values.data()),
                static_cast<std::streamsize>(values.size_bytes()));
    });
  }
  const bool is_whole = file.good() && file.peek() == std::ifstream::traits_type::eof();
  require(is_whole && header.value("sha256", nlohmann::json()) == digest_of(sums),
          "{}: damaged: {}", path_, kAdvice);
  return sums;
}

void ProbeSumsFile::write(const ProbeSums& sums) const {
  fs::create_directories(path_.parent_path());
  const nlohmann::ordered_json header{{"kind", kKind},
                                      {"version", kVersion},
                                      {"settings", settings_},
                                      {"pieces", sums.pieces},
                                      {"sha256", digest_of(sums)}};
  AtomicFile file(path_);
  file.write(header.dump() + "\n");
  for (const auto& [layer, of_layer] : sums.layers) {
    of_layer.visit([&](std::span<const double> values) { file.write(std::as_bytes(values)); });
  }
  file.commit();
}

void ProbeSumsFile::remove() const {
  fs::remove(path_);
}

}  // namespace winnow::train
