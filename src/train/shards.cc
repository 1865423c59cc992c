#include "train/shards.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"

namespace winnow::train {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kShardTokens = std::size_t{1} << 24;
constexpr const char* kManifest = "manifest.json";

std::filesystem::path shard_path(const std::filesystem::path& directory, int index) {
  return directory / fmt::format("shard-{:05}.safetensors", index);
}

template <class T>
TensorView view_of(DType type, const std::vector<T>& values) {
  return {type,
          {static_cast<std::int64_t>(values.size())},
          reinterpret_cast<const std::byte*>(values.data())};
}

ordered_json read_manifest(const std::filesystem::path& directory) {
  const std::filesystem::path path = directory / kManifest;
  ordered_json manifest = parse_json(read_text_file(path), path.string());
  require(manifest.is_object() && manifest.contains("origin") && manifest.contains("shards") &&
              manifest["shards"].is_number_integer() && manifest["shards"].get<int>() >= 0,
          "{}: not a manifest of tokenised data", path.string());
  return manifest;
}

// What a run that was killed leaves: shards, and one that it was writing.
bool has_only_shards(const std::filesystem::path& directory) {
  std::error_code error;
  const auto files = std::filesystem::directory_iterator(directory, error);
  return !error && std::all_of(begin(files), end(files), [](const auto& file) {
    const std::string name = file.path().filename().string();
    return name.starts_with("shard-") && name.find(".safetensors") != std::string::npos;
  });
}

}  // namespace

ShardWriter::ShardWriter(std::filesystem::path directory) : directory_(std::move(directory)) {
  std::error_code error;
  made_directory_ = std::filesystem::create_directories(directory_, error);
  require(!error, "{}: cannot create: {}", directory_.string(), error.message());
  // Remove the manifest first, so that no reader takes unfinished shards for a finished set.
  std::filesystem::remove(directory_ / kManifest, error);
  require(!error, "{}: cannot remove: {}", (directory_ / kManifest).string(), error.message());
}

ShardWriter::~ShardWriter() {
  if (made_directory_ && shards_ == 0) {
    std::error_code ignored;
    std::filesystem::remove(directory_, ignored);
  }
}

void ShardWriter::add(const Document& document) {
  if (document.tokens.empty()) {
    return;
  }
  if (!document.weights.empty()) {
    weights_.resize(buffer_.size(), 1.0F);
    weights_.insert(weights_.end(), document.weights.begin(), document.weights.end());
  }
  buffer_.insert(buffer_.end(), document.tokens.begin(), document.tokens.end());
  offsets_.push_back(static_cast<std::int64_t>(buffer_.size()));
  ++documents_;
  tokens_ += static_cast<std::int64_t>(document.tokens.size());
  if (buffer_.size() >= kShardTokens) {
    flush();
  }
}

void ShardWriter::flush() {
  TensorMap tensors;
  tensors["tokens"] = view_of(DType::i32, buffer_);
  tensors["offsets"] = view_of(DType::i64, offsets_);
  if (!weights_.empty()) {
    weights_.resize(buffer_.size(), 1.0F);
    tensors["weights"] = view_of(DType::f32, weights_);
  }
  write_safetensors(shard_path(directory_, shards_++), tensors);
  buffer_.clear();
  weights_.clear();
  offsets_.assign(1, 0);
}

void ShardWriter::finish(const ordered_json& origin) {
  if (!buffer_.empty()) {
    flush();
  }
  const ordered_json manifest{
      {"origin", origin}, {"shards", shards_}, {"documents", documents_}, {"tokens", tokens_}};
  write_text_file(directory_ / kManifest, json_text(manifest, 2) + "\n");
}

bool Shards::hold(const std::filesystem::path& directory, const ordered_json& origin) {
  std::error_code ignored;
  return std::filesystem::exists(directory / kManifest, ignored) &&
         nlohmann::json(read_manifest(directory)["origin"]) == nlohmann::json(origin);
}

void Shards::require_place(const std::filesystem::path& directory, const ordered_json& origin) {
  std::error_code ignored;
  if (!std::filesystem::exists(directory, ignored) || has_only_shards(directory)) {
    return;
  }
  require(std::filesystem::is_directory(directory, ignored),
          "{}: is not a folder: name another folder", directory.string());
  require(std::filesystem::exists(directory / kManifest, ignored),
          "{}: holds something other than tokenised data: name another folder", directory.string());
  require(hold(directory, origin),
          "{}: holds tokens of other data, or made by another tokenizer: remove it or name another "
          "folder",
          directory.string());
}

Shards::Shards(const std::filesystem::path& directory) {
  std::error_code ignored;
  require(std::filesystem::exists(directory / kManifest, ignored),
          "{}: no {} is there: not tokenised data", directory.string(), kManifest);
  const ordered_json manifest = read_manifest(directory);
  origin_ = manifest["origin"];
  for (int i = 0; i < manifest["shards"].get<int>(); ++i) {
    add_file(shard_path(directory, i));
  }
  require(
      manifest.value("documents", std::int64_t{-1}) == static_cast<std::int64_t>(documents_.size()),
      "{}: has {} documents, {} says otherwise", directory.string(), documents_.size(), kManifest);
}

void Shards::add_file(const std::filesystem::path& path) {
  const SafetensorsFile& file = files_.emplace_back(path);
  const TensorView& tokens = file.tensor("tokens");
  const TensorView& offsets = file.tensor("offsets");
  require(tokens.dtype == DType::i32 && offsets.dtype == DType::i64 && offsets.count() >= 1,
          "{}: not a shard of tokenised data", path.string());
  std::span<const float> weights;
  if (file.holds("weights")) {
    const TensorView& tensor = file.tensor("weights");
    require(tensor.dtype == DType::f32 && tensor.count() == tokens.count(),
            "{}: not a shard of tokenised data", path.string());
    weights = tensor.as<float>();
  }
  const auto bounds = offsets.as<std::int64_t>();
  require(bounds.front() == 0 && bounds.back() == tokens.count() && std::ranges::is_sorted(bounds),
          "{}: the offsets of documents are not in order", path.string());
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    const auto begin = static_cast<std::size_t>(bounds[i]);
    const auto count = static_cast<std::size_t>(bounds[i + 1]) - begin;
    documents_.push_back({tokens.as<std::int32_t>().subspan(begin, count),
                          weights.empty() ? weights : weights.subspan(begin, count)});
  }
  tokens_ += tokens.count();
}

}  // namespace winnow::train
