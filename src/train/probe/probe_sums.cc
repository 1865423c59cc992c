#include "train/probe/probe_sums.h"

#include <fmt/std.h>

#include <fstream>
#include <string>
#include <utility>

#include "base/error.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/json.h"

namespace winnow::train {
namespace {

constexpr const char* kKind = "sums of a probe";
constexpr int kVersion = 1;

}  // namespace

ProbeSumsFile::ProbeSumsFile(std::filesystem::path path, nlohmann::ordered_json settings)
    : path_(std::move(path)), settings_(std::move(settings)) {}

ProbeSums ProbeSumsFile::read() const {
  if (!std::filesystem::exists(path_)) {
    return {};
  }
  std::ifstream file(path_, std::ios::binary);
  std::string line;
  std::getline(file, line);
  require(file.good(), "{}: cannot be read: remove it to begin anew", path_);
  const nlohmann::json header = parse_json(line, path_.string());
  require(header.value("kind", "") == kKind && header.value("version", 0) == kVersion,
          "{}: not the sums of a probe that this version writes: remove it to begin anew", path_);
  for (const auto& [name, value] : settings_.items()) {
    const nlohmann::json found = header.at("settings").value(name, nlohmann::json());
    require(found == nlohmann::json(value),
            "{}: of a training with another {} ({}, now {}): remove it to begin anew", path_, name,
            described(found), described(value));
  }
  return read_body(file, header);
}

ProbeSums ProbeSumsFile::read_body(std::istream& file, const nlohmann::json& header) const {
  ProbeSums sums{.pieces = header.at("pieces").get<std::int64_t>(), .layers = {}};
  for (const nlohmann::json& layer : header.at("layers")) {
    const auto added =
        sums.layers.try_emplace(layer.at(0).get<std::size_t>(), layer.at(1).get<std::size_t>(),
                                layer.at(2).get<std::size_t>());
    added.first->second.visit([&](std::span<double> values) {
      file.read(reinterpret_cast<char*>(values.data()),
                static_cast<std::streamsize>(values.size_bytes()));
    });
  }
  require(file.good() && file.peek() == std::ifstream::traits_type::eof(),
          "{}: damaged, it ends too early or too late: remove it to begin anew", path_);
  return sums;
}

void ProbeSumsFile::write(const ProbeSums& sums) const {
  nlohmann::ordered_json header{{"kind", kKind},
                                {"version", kVersion},
                                {"settings", settings_},
                                {"pieces", sums.pieces},
                                {"layers", nlohmann::ordered_json::array()}};
  for (const auto& [layer, of_layer] : sums.layers) {
    header["layers"].push_back({layer, of_layer.inputs(), of_layer.outputs()});
  }
  AtomicFile file(path_);
  file.write(header.dump() + "\n");
  for (const auto& [layer, of_layer] : sums.layers) {
    of_layer.visit([&](std::span<const double> values) { file.write(std::as_bytes(values)); });
  }
  file.commit();
}

void ProbeSumsFile::remove() const {
  std::filesystem::remove(path_);
}

}  // namespace winnow::train
